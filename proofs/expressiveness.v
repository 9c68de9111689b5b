(* What each norm can and cannot do: when a rotation turns RMSNorm into LayerNorm of the same width,
   the hyperplane that LayerNorm's outputs lie in, and how far any element-wise function must be
   from either. *)
From mathcomp Require Import matrix mxalgebra.
From Normproof Require Import rows norms networks readers.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.Theory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* ---- Rotations to LayerNorm's direction ---- *)
Definition orthogonal (R : rcfType) n (U : 'I_n -> 'I_n -> R) :=
  forall x, apply (transpose U) (apply U x) = x /\ apply U (apply (transpose U) x) = x.

Section Reflection.
Variables (R : rcfType) (n : nat).
Add Field scalars : (scalar_field R).
Implicit Types (x u v : row R n).

(* The Householder reflection I - 2 u u^T/|u|^2. *)
Definition reflection u : 'I_n -> 'I_n -> R :=
  fun i j => (i == j)%:R - 2%:R / dot u u * (u i * u j).

Lemma apply_reflection u x : apply (reflection u) x = x - scale (2%:R / dot u u * dot u x) u.
Proof.
apply/ffunP => i; rewrite !ffunE [dot u x]/dot mulr_sumr mulr_suml.
rewrite [x i](_ : _ = \sum_j (i == j)%:R * x j) -?sumrB.
  by apply: eq_bigr => j _; rewrite mulrBl; congr (_ - _); by_ring R.
rewrite (bigD1 i) //= eqxx mul1r big1 ?addr0 // => j /negPf j_neq.
by rewrite eq_sym j_neq mul0r.
Qed.

Theorem reflection_is_its_own_inverse u x :
  apply (reflection u) (apply (reflection u) x) = x.
Proof.
rewrite !apply_reflection; case: (eqVneq (dot u u) 0) => [/dot_self_eq0 ->|/eqP u_neq0].
  by apply/ffunP => i; rewrite !ffunE !mulr0 !subr0.
by apply/ffunP => i; rewrite !ffunE dotDr dotNr dotZr; by_field R.
Qed.

Theorem reflection_is_orthogonal u : orthogonal (reflection u).
Proof.
have symmetric x : apply (transpose (reflection u)) x = apply (reflection u) x.
  by apply/ffunP => i; rewrite !ffunE; apply: eq_bigr => j _; rewrite /transpose /reflection eq_sym
    [u j * _]mulrC.
by move=> x; rewrite !symmetric reflection_is_its_own_inverse.
Qed.

(* The reflection along q - p takes p to q, and back, up to what their lengths differ by. *)
Theorem reflection_between_two_rows (p q : row R n) :
  let w := q - p in let gap := (dot q q - dot p p) / dot w w in
  dot w w != 0 ->
  apply (reflection w) p = q - scale gap w /\ apply (reflection w) q = p - scale gap w.
Proof.
move=> w gap w_neq0; have apart : dot w w = dot q q + dot p p - 2%:R * dot p q.
  by rewrite /w !dotDl !dotDr !dotNl !dotNr [dot q p]dotC; by_ring R.
have wp : dot w p = dot p q - dot p p by rewrite /w dotDl dotNl [dot q p]dotC.
have wq : dot w q = dot q q - dot p q by rewrite /w dotDl dotNl.
have same (z z' : row R n) (c : R) : (forall i, z i - z' i = (c - gap) * w i) ->
    z - scale c w = z' - scale gap w.
  move=> gaps; apply/ffunP => i; rewrite !ffunE; have := gaps i; rewrite !ffunE => step.
  by rewrite -[z i](subrK (z' i)) step; by_ring R.
have coefficient (a c : R) : a = dot w w * c -> a / dot w w = c.
  by move=> ->; rewrite mulrAC divff ?mul1r.
rewrite !apply_reflection; split; apply: same => i.
  have -> : 2%:R / dot w w * dot w p - gap = -1.
    rewrite /gap mulrAC -mulrBl; apply: coefficient; rewrite wp apart; by_ring R.
  by rewrite /w !ffunE; by_ring R.
have -> : 2%:R / dot w w * dot w q - gap = 1.
  by rewrite /gap mulrAC -mulrBl; apply: coefficient; rewrite wq apart; by_ring R.
by rewrite /w !ffunE; by_ring R.
Qed.

(* Here: from any row of length 1 to (1, ..., 1)/sqrt n. *)
Theorem some_rotation_takes_any_unit_row_to_the_ones v : (0 < n)%N -> dot v v = 1 ->
  exists2 U, orthogonal U & apply U v = const (Num.sqrt n%:R)^-1.
Proof.
move=> n_gt0 v1; set e := const _; have e1 : dot e e = 1.
  rewrite dot_constl total_const mulrCA -expr2 exprVn sqr_sqrtr ?ler0n //.
  by rewrite divff ?width_neq0.
exists (reflection (v - e)); first exact: reflection_is_orthogonal.
rewrite apply_reflection; case: (eqVneq (dot (v - e) (v - e)) 0) => [/dot_self_eq0 same|].
  rewrite same; apply/ffunP => i; have /ffunP/(_ i) := same.
  by rewrite !ffunE mulr0 subr0 => /eqP; rewrite subr_eq0 => /eqP.
have -> : dot (v - e) (v - e) = 2%:R * dot (v - e) v.
  by rewrite !dotDl !dotDr !dotNl !dotNr v1 e1 [dot e v]dotC; by_ring R.
rewrite mulf_eq0 negb_or => /andP[/eqP two_neq0 /eqP inner_neq0].
have root_neq0 : Num.sqrt n%:R <> 0 :> R by apply/eqP; rewrite gt_eqF // sqrtr_gt0 ltr0n.
by apply/ffunP => i; rewrite !ffunE; by_field R.
Qed.
End Reflection.

Section Rotation.
Variables (R : rcfType) (n : nat) (U : 'I_n -> 'I_n -> R) (v : row R n).
Add Field scalars : (scalar_field R).
Implicit Types (x y : row R n) (eps : R).

(* U takes the unit row v to (1, ..., 1)/sqrt n; such a U exists for every v. *)
Local Notation "'U^T'" := (transpose U).
Hypothesis n_gt0 : (0 < n)%N.
Hypothesis U_orthogonal : orthogonal U.
Hypothesis v_to_ones : apply U v = const (Num.sqrt n%:R)^-1.

Lemma orthonormal_columns x : apply U^T (apply U x) = x.
Proof. exact: proj1 (U_orthogonal x). Qed.
Theorem rotations_keep_inner_products x y : dot (apply U x) (apply U y) = dot x y.
Proof. by rewrite apply_transpose orthonormal_columns. Qed.

Theorem rotated_row_sums_to_its_part_along_v x : total (apply U x) = Num.sqrt n%:R * dot v x.
Proof.
rewrite -(rotations_keep_inner_products v) v_to_ones dot_constl mulVKf //.
by rewrite gt_eqF // sqrtr_gt0 ltr0n.
Qed.

Theorem rms_norm_commutes_with_rotations eps x : rms_hat eps (apply U x) = apply U (rms_hat eps x).
Proof. by rewrite !rms_hat_scale !mean_square_dot rotations_keep_inner_products applyZ. Qed.

(* U^T P U takes from a row what lies along v. *)
Theorem rotated_centring_projects_along_v x :
  apply U^T (center (apply U x)) = x - scale (dot v x) v.
Proof.
have root_neq0 : Num.sqrt n%:R != 0 :> R by rewrite gt_eqF // sqrtr_gt0 ltr0n.
have ones : const (mean (apply U x)) = scale (dot v x) (apply U v).
  rewrite v_to_ones /mean rotated_row_sums_to_its_part_along_v; apply/ffunP => i; rewrite !ffunE.
  by rewrite -{2}[n%:R]sqr_sqrtr ?ler0n // expr2 invfM mulrACA divff // mul1r.
rewrite centerE ones -applyZ applyD orthonormal_columns.
have -> : - apply U (scale (dot v x) v) = apply U (scale (- dot v x) v).
  by rewrite !applyZ; apply/ffunP => i; rewrite !ffunE mulNr.
rewrite orthonormal_columns; congr (_ + _).
by apply/ffunP => i; rewrite !ffunE mulNr.
Qed.

Lemma rotated_layer_norm_is_rms_norm eps x :
  dot v x = 0 -> apply U^T (ln_hat eps (apply U x)) = rms_hat eps x.
Proof.
move=> orthogonal.
have zero_sum : total (apply U x) = 0.
  by rewrite rotated_row_sums_to_its_part_along_v orthogonal mulr0.
rewrite ln_hat_center center_zero_sum // rms_norm_commutes_with_rotations.
exact: orthonormal_columns.
Qed.

(* U^T LN(U x) = RMS(x) exactly on the rows that are orthogonal to v. *)
Theorem rotated_layer_norm_is_rms_norm_exactly_on_orthogonal_rows eps x :
  0 < mean_square x + eps ->
  apply U^T (ln_hat eps (apply U x)) = rms_hat eps x <-> dot v x = 0.
Proof.
move=> positive; split=> [same|]; last exact: rotated_layer_norm_is_rms_norm.
have : total (apply U (rms_hat eps x)) = 0.
  rewrite -same (proj2 (U_orthogonal _)) ln_hat_center rms_hat_scale totalZ.
  by rewrite centred_row_sums_to_zero mulr0.
move/eqP; rewrite rotated_row_sums_to_its_part_along_v rms_hat_scale dotZr !mulf_eq0 invr_eq0.
have root_n : 0 < Num.sqrt n%:R :> R by rewrite sqrtr_gt0 ltr0n.
have root_x : 0 < Num.sqrt (mean_square x + eps) by rewrite sqrtr_gt0.
by rewrite (gt_eqF root_n) (gt_eqF root_x) => /eqP.
Qed.

(* A network whose writes are all orthogonal to v. *)
Section Network.
Variable tokens : nat.
Implicit Types (blocks : seq (block R tokens n)).

Fixpoint orthogonal_writes blocks :=
  if blocks is f :: rest then (forall z t, dot v (body f z t) = 0) /\ orthogonal_writes rest
  else True.

Definition rotated_ln eps w b x : row R n := affine w b (apply U^T (ln_hat eps x)).

Theorem pre_rms_stream_is_rotated_pre_ln_stream blocks (x : stream R tokens n) :
  orthogonal_writes blocks -> (forall t, dot v (x t) = 0) ->
  final_stream rotated_ln (apply U) blocks (each (apply U) x) =
  each (apply U) (final_stream (@rms_norm R n) id blocks x).
Proof.
rewrite /final_stream; elim: blocks x => //= f blocks IH x [orthogonal rest] x0.
have -> : branch rotated_ln (apply U) f (each (apply U) x) =
    each (apply U) (branch (@rms_norm R n) id f x).
  rewrite /branch each_id; congr (each _ (body f _)); apply/ffunP => t; rewrite !ffunE.
  by rewrite /rotated_ln rotated_layer_norm_is_rms_norm.
rewrite -eachD; last by move=> y z; rewrite applyD.
by apply: IH => // t; rewrite ffunE dotDr x0 [_ t]ffunE orthogonal addr0.
Qed.

(* Such blocks exist, if v has length 1: take from every write what lies along v. *)
Theorem projected_bodies_write_across_v blocks : dot v v = 1 ->
  orthogonal_writes [seq Block (block_eps f) (block_weight f) (block_bias f)
    (fun z => each (fun y => y - scale (dot v y) v) (body f z)) | f <- blocks].
Proof.
move=> v1; elim: blocks => //= f blocks IH; split=> // z t.
by rewrite ffunE dotDr dotNr dotZr v1 mulr1 subrr.
Qed.
End Network.
End Rotation.

Section Hyperplane.
Variables (R : rcfType) (n : nat).
Add Field scalars : (scalar_field R).
Implicit Types (x u : row R n) (eps c : R) (k : 'I_n).

Definition unit_row k : row R n := [ffun i => (i == k)%:R].
Lemma dot_unit_row u k : dot u (unit_row k) = u k.
Proof.
rewrite /dot (bigD1 k) //= ffunE eqxx mulr1 big1 ?addr0 // => i /negPf i_neq.
by rewrite ffunE i_neq mulr0.
Qed.
Lemma total_unit_row k : total (unit_row k) = 1.
Proof. by rewrite -[total _]mul1r -dot_constl dot_unit_row ffunE. Qed.
Lemma mean_square_unit_row k : mean_square (unit_row k) = n%:R^-1.
Proof. by rewrite mean_square_dot dot_unit_row ffunE eqxx mul1r. Qed.

(* LayerNorm's normalised rows lie in the hyperplane orthogonal to (1, ..., 1), ... *)
Theorem layer_norm_outputs_lie_in_a_hyperplane eps x : dot (const 1) (ln_hat eps x) = 0.
Proof.
by rewrite ln_hat_center rms_hat_scale dotZr dot_constl centred_row_sums_to_zero !mulr0.
Qed.

(* ... while no affine functional but 0 is constant on RMSNorm's: they span the whole space. *)
Theorem rms_norm_outputs_lie_in_no_hyperplane eps u c : 0 <= eps ->
  (forall x, 0 < mean_square x + eps -> dot u (rms_hat eps x) = c) -> u = 0 /\ ((0 < n)%N -> c = 0).
Proof.
move=> eps_ge0 constant.
have unit_positive k : 0 < mean_square (unit_row k) + eps.
  by rewrite mean_square_unit_row ltr_paddr // invr_gt0 ltr0n (index_gt0 k).
have c0 k : c = 0.
  have negated : dot u (rms_hat eps (- unit_row k)) = c.
    by apply: constant; rewrite mean_square_dot dotNl dotNr opprK -mean_square_dot.
  have := negated; rewrite rms_norm_is_odd dotNr constant // => /eqP.
  by rewrite eqNr => /eqP.
split=> [|n_gt0]; last exact: c0 (Ordinal n_gt0).
apply/ffunP => k; rewrite [RHS]ffunE; have := constant _ (unit_positive k).
rewrite rms_hat_scale dotZr dot_unit_row (c0 k) => /eqP.
have root_gt0 : 0 < Num.sqrt (mean_square (unit_row k) + eps) by rewrite sqrtr_gt0.
by rewrite mulf_eq0 invr_eq0 (gt_eqF root_gt0) => /eqP.
Qed.

(* No element of LayerNorm exceeds sqrt(n - 1): the part of e_k along (1, ..., 1) is never seen. *)
Lemma cauchy_schwarz x u : dot x u ^+ 2 <= dot x x * dot u u.
Proof.
case: (eqVneq (dot u u) 0) => [/dot_self_eq0 ->|uu_neq0].
  by rewrite [dot x 0]big1 ?expr0n ?mulr_ge0 ?dot_self_ge0 // => i _; rewrite ffunE mulr0.
have uu_gt0 : 0 < dot u u by rewrite lt0r uu_neq0 dot_self_ge0.
have := dot_self_ge0 (scale (dot u u) x - scale (dot x u) u).
have -> : dot (scale (dot u u) x - scale (dot x u) u) (scale (dot u u) x - scale (dot x u) u) =
    dot u u * (dot x x * dot u u - dot x u ^+ 2).
  by rewrite !dotDl !dotDr !dotNl !dotNr !dotZl !dotZr [dot u x]dotC; by_ring R.
by rewrite pmulr_rge0 // subr_ge0.
Qed.

Theorem normalised_element_of_layer_norm_is_at_most_sqrt_of_d_minus_one eps x k :
  0 <= eps -> ln_hat eps x k ^+ 2 <= n.-1%:R.
Proof.
move=> eps_ge0; have n_gt0 := index_gt0 k; have n_neq0 := width_neq0 R n_gt0.
have n_pred : n%:R = n.-1%:R + 1 :> R by rewrite -natr_succ prednK.
have zero_sum : total (ln_hat eps x) = 0.
  by rewrite ln_hat_center rms_hat_scale totalZ centred_row_sums_to_zero mulr0.
have -> : ln_hat eps x k = dot (ln_hat eps x) (center (unit_row k)).
  by rewrite centring_is_symmetric center_zero_sum // dot_unit_row.
have short : n%:R * dot (center (unit_row k)) (center (unit_row k)) = n.-1%:R.
  have one : 1 = dot (center (unit_row k)) (center (unit_row k)) + n%:R * n%:R^-1 ^+ 2 :> R.
    by have := pythagoras (unit_row k); rewrite dot_unit_row ffunE eqxx /mean total_unit_row mul1r.
  have := congr1 ( *%R n%:R) one; rewrite mulr1 mulrDr [n%:R * (n%:R * _)]mulrA -expr2 -exprMn.
  by rewrite divff // expr1n {1}n_pred => /addIr.
apply: le_trans (cauchy_schwarz _ _) _; rewrite -short; apply: ler_wpmul2r.
  exact: dot_self_ge0.
by rewrite ln_hat_center normalised_row_has_bounded_energy.
Qed.
End Hyperplane.

(* ---- Strictly less than RMSNorm of the same width ----
   n affine combinations of a LayerNorm's n outputs satisfy a linear equation, whatever the row. *)
Section StrictOrder.
Variables (R : rcfType) (n : nat).
Hypothesis n_gt0 : (0 < n)%N.
Implicit Types (A : 'I_n -> 'I_n -> R) (w b c x z u : row R n) (eps k : R).

Lemma image_of_zero_sum_rows_is_thin A :
  exists2 u, u != 0 & forall z, total z = 0 -> dot u (apply A z) = 0.
Proof.
pose M : 'M[R]_n := \matrix_(i, j) A i j.
pose of_matrix (v : 'rV[R]_n) : row R n := [ffun i => v ord0 i].
have transposed v j : apply (transpose A) (of_matrix v) j = (v *m M)%R ord0 j.
  by rewrite ffunE mxE; apply: eq_bigr => i _; rewrite ffunE mxE mulrC.
case: (boolP (M \in unitmx)) => [regular|singular].
  have ones : apply (transpose A) (of_matrix (const_mx 1 *m invmx M)) = const 1.
    by apply/ffunP => j; rewrite transposed mulmxKV // mxE ffunE.
  exists (of_matrix (const_mx 1 *m invmx M)) => [|z z0]; last first.
    by rewrite apply_transpose ones dot_constl z0 mulr0.
  apply/eqP => u0; have /ffunP/(_ (Ordinal n_gt0)) := ones.
  rewrite u0 !ffunE big1 => [/eqP|i _]; last by rewrite ffunE mulr0.
  by rewrite eq_sym oner_eq0.
have : kermx M != 0 by rewrite kermx_eq0 row_free_unit.
case/rowV0Pn => v /sub_kermxP vM0 v_neq0; exists (of_matrix v) => [|z _]; last first.
  rewrite apply_transpose; apply: big1 => j _.
  by rewrite transposed vM0 mxE mul0r.
apply: contra_neq v_neq0 => /ffunP v0; apply/matrixP => i j.
by rewrite ord1 mxE; have := v0 j; rewrite !ffunE.
Qed.

Theorem layer_norm_read_outs_lie_in_a_hyperplane A w b c :
  exists2 u, u != 0 & exists k, forall eps x, dot u (apply A (layer_norm eps w b x) + c) = k.
Proof.
have [u u_neq0 thin] := image_of_zero_sum_rows_is_thin (fun i j => A i j * w j).
exists u => //; exists (dot u (apply A b + c)) => eps x.
rewrite affine_is_folded_into_the_reader -addrA dotDr thin ?add0r //.
by rewrite ln_hat_center rms_hat_scale totalZ centred_row_sums_to_zero mulr0.
Qed.

(* So no affine read-out of a LayerNorm is an RMSNorm of the same width, whatever came before. *)
Theorem no_read_out_of_layer_norm_is_rms_norm A w b c eps eps' (state : row R n -> row R n) :
  0 <= eps -> ~ (forall x, 0 < mean_square x + eps ->
    apply A (layer_norm eps' w b (state x)) + c = rms_hat eps x).
Proof.
move=> eps_ge0 same; have [u u_neq0 [k thin]] := layer_norm_read_outs_lie_in_a_hyperplane A w b c.
have [|u0 _] := @rms_norm_outputs_lie_in_no_hyperplane R n eps u k eps_ge0.
  by move=> x /same <-; apply: thin.
by rewrite u0 eqxx in u_neq0.
Qed.

(* Hence the order of Pre-LN and Pre-RMSNorm networks of the same width is strict. Every Pre-LN
   network is a Pre-RMSNorm network (pre_ln_network_is_pre_rms_network); but the Pre-RMSNorm
   network without any block, with weight 1, bias 0 and nothing after its norm, is no Pre-LN network
   with a linear head, of any number of blocks and tokens, at any token. *)
Theorem no_pre_ln_network_is_a_bare_rms_norm tokens (t : 'I_tokens) blocks A w b c eps eps' :
  0 <= eps -> ~ (forall x : stream R tokens n, 0 < mean_square (x t) + eps ->
    let affine_head (z : stream R tokens n) := apply A (z t) + c in
    let bare_head (z : stream R tokens n) := z t in
    network (@layer_norm R n) id affine_head eps' w b blocks x =
    network (@rms_norm R n) id bare_head eps (const 1) 0 [::] x).
Proof.
move=> eps_ge0 same; pose everywhere x : stream R tokens n := [ffun=> x].
apply: (@no_read_out_of_layer_norm_is_rms_norm A w b c eps eps'
  (fun x => final_stream (@layer_norm R n) id blocks (everywhere x) t)) => // x positive.
have := same (everywhere x); rewrite /network /final_stream /= !ffunE => -> //.
by apply/ffunP => i; rewrite !ffunE mulr1 addr0.
Qed.
End StrictOrder.

(* ---- Element-wise replacements (DyT and its kind) ----
   phi is what an element-wise layer does to channel k; its weight and bias are inside. *)
Section ElementWise.
Variables (R : rcfType) (n : nat) (k : 'I_n).
Add Field scalars : (scalar_field R).
Implicit Types (phi : R -> R) (a b c r : R).

Lemma farther_of_two a b c : exists d, (d = a \/ d = b) /\ (a - b) / 2%:R <= `|d - c|.
Proof.
have halves : (a - b) / 2%:R + (a - b) / 2%:R = a - b.
  by name_operations R; field; apply/eqP; rewrite (pnatr_eq0 R 2).
case: (leP ((a - b) / 2%:R) `|a - c|) => [far|near]; first by exists a; split; first left.
exists b; split; first by right.
rewrite leNgt; apply/negP => near'.
have := ltr_add near near'; rewrite halves ltNge => /negP; apply.
rewrite [`|b - c|]distrC; apply: le_trans (ler_norm_add _ _).
by rewrite (_ : a - c + (c - b) = a - b) ?ler_norm //; by_ring R.
Qed.

(* r e_k and r (1, ..., 1) have the same element k, and RMSNorm makes sqrt n and 1 of it. *)
Theorem rms_norm_bound_is_attained r : 0 < r ->
  rms_hat 0 (scale r (unit_row R k)) k = Num.sqrt n%:R.
Proof.
move=> /rms_norm_is_homogeneous_of_degree_zero ->.
by rewrite ffunE mean_square_unit_row addr0 sqrtrV ?ler0n // invrK ffunE eqxx mul1r.
Qed.
Lemma rms_hat_of_constant_row r : 0 < r -> rms_hat 0 (const r) k = 1.
Proof.
move=> r_gt0; have -> : const r = scale r (const 1) :> row R n.
  by apply/ffunP => i; rewrite !ffunE mulr1.
rewrite rms_norm_is_homogeneous_of_degree_zero // !ffunE mean_square_dot dot_constl total_const.
by rewrite !mul1r mulr1 addr0 divff ?sqrtr1 ?invr1 // width_neq0 // (index_gt0 k).
Qed.

Theorem element_wise_layer_is_far_from_rms_norm phi r : 0 < r ->
  exists x : row R n, x k = r /\ (Num.sqrt n%:R - 1) / 2%:R <= `|rms_hat 0 x k - phi (x k)|.
Proof.
move=> r_gt0; have [d [[]-> far]] := farther_of_two (Num.sqrt n%:R) 1 (phi r).
  exists (scale r (unit_row R k)); rewrite rms_norm_bound_is_attained //.
  by rewrite !ffunE eqxx mulr1.
by exists (const r); rewrite rms_hat_of_constant_row // ffunE.
Qed.

(* Farther still from LayerNorm: r e_k and its mirror image 2r (1, ..., 1) - r e_k. *)
Theorem layer_norm_bound_is_attained r : (1 < n)%N -> 0 < r ->
  ln_hat 0 (scale r (unit_row R k)) k = Num.sqrt n.-1%:R.
Proof.
move=> n_gt1 r_gt0.
rewrite ln_hat_center centerZ rms_norm_is_homogeneous_of_degree_zero // -ln_hat_center.
have n_gt0 := index_gt0 k; have n_neq0 := width_neq0 R n_gt0.
have n_pred : n%:R = n.-1%:R + 1 :> R by rewrite -natr_succ prednK.
have pred_gt0 : 0 < n.-1%:R :> R by rewrite ltr0n -subn1 subn_gt0.
have -> : ln_hat 0 (unit_row R k) k = (n.-1%:R / n%:R) / Num.sqrt (n.-1%:R / n%:R ^+ 2).
  rewrite ffunE variance_in_one_pass mean_square_unit_row /mean total_unit_row ffunE eqxx addr0.
  congr (_ / Num.sqrt _).
    by rewrite n_pred mulr1n; by_field R; rewrite -n_pred; apply/eqP.
  by rewrite n_pred; by_field R; rewrite -n_pred; apply/eqP.
rewrite sqrtrM ?ler0n // sqrtrV ?sqr_ge0 // sqrtr_sqr ger0_norm ?ler0n //.
rewrite -mulf_div divff ?invr_neq0 // mulr1 -{1}[n.-1%:R]sqr_sqrtr ?ler0n // expr2.
by rewrite mulfK // gt_eqF // sqrtr_gt0.
Qed.

Theorem element_wise_layer_is_far_from_layer_norm phi r : (1 < n)%N -> 0 < r ->
  exists x : row R n, x k = r /\ Num.sqrt n.-1%:R <= `|ln_hat 0 x k - phi (x k)|.
Proof.
move=> n_gt1 r_gt0; set a := Num.sqrt n.-1%:R.
have [d [choice far]] := farther_of_two a (- a) (phi r).
have unit_image : ln_hat 0 (scale r (unit_row R k)) k = a by exact: layer_norm_bound_is_attained.
have mirror_image : ln_hat 0 (- scale r (unit_row R k) + const (2%:R * r)) k = - a.
  rewrite ln_hat_center centring_does_not_see_a_shift centerN rms_norm_is_odd ffunE.
  by rewrite -ln_hat_center unit_image.
have whole : (a - - a) / 2%:R = a.
  by name_operations R; field; apply/eqP; rewrite (pnatr_eq0 R 2).
rewrite whole in far; case: choice far => -> far.
  by exists (scale r (unit_row R k)); rewrite unit_image !ffunE eqxx mulr1.
exists (- scale r (unit_row R k) + const (2%:R * r)); rewrite mirror_image.
suff -> : (- scale r (unit_row R k) + const (2%:R * r)) k = r by [].
by rewrite !ffunE eqxx mulr1n; by_ring R.
Qed.
End ElementWise.

(* No axiom: this prints "Closed under the global context". *)
Definition theorems_of_expressiveness :=
  (@reflection_is_its_own_inverse,
   @reflection_is_orthogonal,
   @reflection_between_two_rows,
   @some_rotation_takes_any_unit_row_to_the_ones,
   @rotations_keep_inner_products,
   @rotated_row_sums_to_its_part_along_v,
   @rms_norm_commutes_with_rotations,
   @rotated_centring_projects_along_v,
   @rotated_layer_norm_is_rms_norm_exactly_on_orthogonal_rows,
   @pre_rms_stream_is_rotated_pre_ln_stream,
   @projected_bodies_write_across_v,
   @layer_norm_outputs_lie_in_a_hyperplane,
   @rms_norm_outputs_lie_in_no_hyperplane,
   @normalised_element_of_layer_norm_is_at_most_sqrt_of_d_minus_one,
   @layer_norm_read_outs_lie_in_a_hyperplane,
   @no_read_out_of_layer_norm_is_rms_norm,
   @no_pre_ln_network_is_a_bare_rms_norm,
   @rms_norm_bound_is_attained,
   @element_wise_layer_is_far_from_rms_norm,
   @layer_norm_bound_is_attained,
   @element_wise_layer_is_far_from_layer_norm).
Print Assumptions theorems_of_expressiveness.
