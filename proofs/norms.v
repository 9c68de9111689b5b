(* RMSNorm and LayerNorm, and the identities between their formulas and algorithms. *)
From Normproof Require Import rows.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.Theory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Norms.
Variables (R : rcfType) (n : nat).
Add Field scalars : (scalar_field R).
Implicit Types (x w b : row R n) (c eps : R).

(* The variance in two passes: first the mean, then the squared deviations from it. *)
Definition variance x : R := (\sum_i (x i - mean x) ^+ 2) / n%:R.

(* The normalised rows, and the norms with weight w and bias b. *)
Definition rms_hat eps x : row R n := [ffun i => x i / Num.sqrt (mean_square x + eps)].
Definition ln_hat eps x : row R n := [ffun i => (x i - mean x) / Num.sqrt (variance x + eps)].
Definition affine w b x : row R n := [ffun i => x i * w i + b i].
Definition rms_norm eps w b x := affine w b (rms_hat eps x).
Definition layer_norm eps w b x := affine w b (ln_hat eps x).

Lemma rms_hat_scale eps x : rms_hat eps x = scale (Num.sqrt (mean_square x + eps))^-1 x.
Proof. by apply/ffunP => i; rewrite !ffunE mulrC. Qed.

Lemma variance_center x : variance x = mean_square (center x).
Proof. by congr (_ / _); apply: eq_bigr => i _; rewrite ffunE. Qed.
Lemma variance_ge0 x : 0 <= variance x.
Proof. by rewrite variance_center mean_square_ge0. Qed.

Lemma ln_hat_center eps x : ln_hat eps x = rms_hat eps (center x).
Proof. by apply/ffunP => i; rewrite !ffunE variance_center. Qed.

(* Jiang et al. 2023, eq. 1 and 2: LayerNorm is RMSNorm after the mean has been subtracted, with
   the same eps, weight and bias. *)
Theorem layer_norm_is_rms_norm_of_centred eps w b x :
  layer_norm eps w b x = rms_norm eps w b (center x).
Proof. by rewrite /layer_norm ln_hat_center. Qed.

(* Hence on a residual stream that is kept zero-mean, the two norms are the same function. *)
Theorem layer_norm_is_rms_norm_on_zero_mean_rows eps w b x :
  total x = 0 -> layer_norm eps w b x = rms_norm eps w b x.
Proof. by move=> /center_zero_sum x0; rewrite layer_norm_is_rms_norm_of_centred x0. Qed.

Theorem layer_norm_is_shift_invariant eps w b c x :
  layer_norm eps w b (x + const c) = layer_norm eps w b x.
Proof. by rewrite !layer_norm_is_rms_norm_of_centred centring_does_not_see_a_shift. Qed.

(* Some kernels subtract the mean after scaling: x s + (b - mean s), with s = w rstd. *)
Theorem folded_shift_is_two_pass eps w b x :
  let s i := w i / Num.sqrt (variance x + eps) in
  layer_norm eps w b x = [ffun i => x i * s i + (b i - mean x * s i)].
Proof. by apply/ffunP => i; rewrite !ffunE; by_ring R. Qed.

(* RMSNorm sees a shift, at every width: (1, ..., 1) and its shift by -2 have opposite images. *)
Theorem rms_norm_is_not_shift_invariant eps :
  (0 < n)%N -> 0 <= eps -> exists x c, rms_hat eps (x + const c) != rms_hat eps x.
Proof.
move=> n_gt0 eps_ge0; exists (const 1), (- 2%:R); apply/eqP => /ffunP/(_ (Ordinal n_gt0)).
have mean_square1 c : c ^+ 2 = 1 -> mean_square (const c : row R n) = 1.
  by move=> c1; rewrite mean_square_dot dot_constl total_const mulrCA -expr2 c1 mulr1 divff
    ?width_neq0.
have -> : const 1 + const (- 2%:R) = const (- 1) :> row R n.
  by apply/ffunP => i; rewrite !ffunE; by_ring R.
rewrite !ffunE !mean_square1 ?sqrrN ?expr1n // mulNr => /eqP.
by rewrite eqNr mul1r invr_eq0 gt_eqF // sqrtr_gt0 ltr_paddr ?ltr01.
Qed.

(* mean((x + t)^2) = var x + (mean x + t)^2. *)
Theorem mean_square_of_shifted_row x c : (0 < n)%N ->
  mean_square (x + const c) = variance x + (mean x + c) ^+ 2.
Proof.
move=> n_gt0; rewrite mean_square_dot pythagoras centring_does_not_see_a_shift mulrDl.
by rewrite variance_center mean_square_dot meanD mean_const // [n%:R * _]mulrC mulfK ?width_neq0.
Qed.

(* var x = mean(x^2) - mean(x)^2. Exact over the reals; in floating point it cancels. *)
Theorem variance_in_one_pass x : variance x = mean_square x - mean x ^+ 2.
Proof.
rewrite variance_center !mean_square_dot dot_center centerE dotDl dotNl dot_constl.
rewrite total_is_width_times_mean.
case: (eqVneq (n%:R : R) 0) => [n0|/eqP n_neq0]; last by by_field R.
by rewrite /mean n0 invr0 !mulr0 expr0n subr0.
Qed.

Theorem one_pass_is_two_pass eps w b x :
  layer_norm eps w b x =
  affine w b [ffun i => (x i - mean x) / Num.sqrt (mean_square x - mean x ^+ 2 + eps)].
Proof. by rewrite -variance_in_one_pass. Qed.

(* The one-pass formula about any pivot c, which the row's own elements should be near. *)
Theorem shifted_one_pass_is_two_pass c x :
  variance x = mean_square (x - const c) - mean (x - const c) ^+ 2.
Proof.
have -> : x - const c = x + const (- c) by apply/ffunP => i; rewrite !ffunE.
by rewrite -variance_in_one_pass !variance_center centring_does_not_see_a_shift.
Qed.

(* The variance as the gap of the Cauchy-Schwarz inequality against (1, ..., 1). *)
Lemma sum_squared_le x : total x ^+ 2 <= n%:R * dot x x.
Proof.
case: (eqVneq (n%:R : R) 0) => [n0|n_neq0].
  by rewrite total_is_width_times_mean n0 !mul0r expr0n.
have := variance_ge0 x; rewrite variance_in_one_pass mean_square_dot /mean subr_ge0 expr_div_n.
have n_gt0 : 0 < n%:R :> R by rewrite lt0r n_neq0 ler0n.
rewrite ler_pdivr_mulr ?exprn_gt0 // expr2 => /le_trans; apply.
by rewrite mulrA divfK // mulrC.
Qed.

(* RMSNorm does not see a positive scale, once eps is scaled with it (or is 0). *)
Theorem rms_norm_of_scaled_row eps c x :
  0 < c -> rms_hat (c ^+ 2 * eps) (scale c x) = rms_hat eps x.
Proof.
move=> c_gt0; apply/ffunP => i; rewrite !ffunE mean_square_dot dotZl dotZr.
have -> : c * (c * dot x x) / n%:R + c ^+ 2 * eps = c ^+ 2 * (mean_square x + eps).
  by rewrite mean_square_dot; by_ring R.
by rewrite sqrtrM ?sqr_ge0 // sqrtr_sqr gtr0_norm // -mulf_div divff ?mul1r ?gt_eqF.
Qed.

Theorem rms_norm_is_homogeneous_of_degree_zero c x : 0 < c -> rms_hat 0 (scale c x) = rms_hat 0 x.
Proof. by move=> c_gt0; rewrite -(rms_norm_of_scaled_row 0 x c_gt0) mulr0. Qed.

Theorem rms_norm_is_odd eps x : rms_hat eps (- x) = - rms_hat eps x.
Proof. by apply/ffunP => i; rewrite !ffunE !mean_square_dot dotNl dotNr opprK mulNr. Qed.

(* LayerNorm does not see a shift either, and a sign stays. *)
Theorem variance_of_scaled_and_shifted_row c t x :
  variance (scale c x + const t) = c ^+ 2 * variance x.
Proof.
rewrite !variance_center centring_does_not_see_a_shift centerZ !mean_square_dot dotZl dotZr.
by by_ring R.
Qed.

Theorem layer_norm_is_affine_invariant eps c t x :
  0 < c -> ln_hat (c ^+ 2 * eps) (scale c x + const t) = ln_hat eps x.
Proof.
move=> c_gt0; rewrite !ln_hat_center centring_does_not_see_a_shift centerZ.
exact: rms_norm_of_scaled_row.
Qed.

Theorem layer_norm_is_odd eps x : ln_hat eps (- x) = - ln_hat eps x.
Proof. by rewrite !ln_hat_center centerN rms_norm_is_odd. Qed.

(* RMSNorm keeps every direction: t u, of a row u of length 1, goes to a multiple of u. *)
Theorem rms_norm_of_zero_row eps w b : rms_norm eps w b 0 = b.
Proof. by apply/ffunP => i; rewrite !ffunE !mul0r add0r. Qed.

Theorem rms_norm_of_a_direction eps t u : dot u u = 1 ->
  rms_hat eps (scale t u) = scale (t / Num.sqrt (t ^+ 2 / n%:R + eps)) u.
Proof.
move=> u1; rewrite rms_hat_scale scaleA mean_square_dot dotZl dotZr u1 mulr1 -expr2.
by rewrite mulrC.
Qed.

(* A normalised row has |x_hat|^2 <= d, so no element of it exceeds sqrt d. *)
Theorem normalised_row_has_bounded_energy eps x :
  0 <= eps -> dot (rms_hat eps x) (rms_hat eps x) <= n%:R.
Proof.
move=> eps_ge0; set v := mean_square x + eps.
have v_ge0 : 0 <= v by rewrite addr_ge0 ?mean_square_ge0.
rewrite rms_hat_scale dotZl dotZr mulrA -expr2 exprVn sqr_sqrtr // -/v mulrC.
case: (eqVneq v 0) => [->|v_neq0]; first by rewrite invr0 mulr0 ler0n.
rewrite ler_pdivr_mulr ?lt0r ?v_neq0 //.
by rewrite dot_self_eq_width ler_wpmul2l ?ler0n // ler_addl.
Qed.

Theorem normalised_element_is_at_most_sqrt_d eps x i :
  0 <= eps -> `|rms_hat eps x i| <= Num.sqrt n%:R.
Proof.
move=> /(normalised_row_has_bounded_energy x) bounded.
rewrite -sqrtr_sqr ler_sqrt ?ltr0n ?(index_gt0 i) //; apply: le_trans bounded.
by rewrite dot_self (bigD1 i) //= ler_addl sumr_ge0 // => j _; rewrite sqr_ge0.
Qed.

(* The divisor d - 1 of the sample variance is a fault: it changes the output at every row that is
   not constant, at every width of at least two. *)
Definition ln_hat_sample eps x : row R n :=
  [ffun i => (x i - mean x) / Num.sqrt ((\sum_j (x j - mean x) ^+ 2) / n.-1%:R + eps)].

(* With any other k in the place of d, the outputs y_k and y differ by
   1/y_k^2 - 1/y^2 = |P x|^2/(P x)_i^2 (d - k)/(k d), which is 0 for k = d only. *)
Theorem gap_of_another_divisor eps k x i : 0 < k -> 0 <= eps -> x i != mean x ->
  let squares := \sum_j (x j - mean x) ^+ 2 in
  let y := ln_hat eps x i in let y_k := (x i - mean x) / Num.sqrt (squares / k + eps) in
  (y_k ^+ 2)^-1 - (y ^+ 2)^-1 =
  squares * (n%:R - k) / (k * n%:R * (x i - mean x) ^+ 2).
Proof.
move=> k_gt0 eps_ge0 xi_neq squares y y_k; have n_gt0 := index_gt0 i.
have squares_ge0 : 0 <= squares by apply: sumr_ge0 => j _; rewrite sqr_ge0.
have c_neq0 : x i - mean x <> 0 by apply/eqP; rewrite subr_eq0.
have n_neq0 : n%:R <> 0 :> R by apply/eqP/width_neq0.
have k_neq0 : k <> 0 by apply/eqP; rewrite gt_eqF.
rewrite /y_k /y ffunE /variance !expr_div_n !sqr_sqrtr; first last.
- by rewrite addr_ge0 // divr_ge0 // ltW.
- by rewrite addr_ge0 // divr_ge0 // ler0n.
rewrite !invf_div -/squares => {y y_k}; move: squares {squares_ge0} => s.
by by_field R.
Qed.

Theorem sample_variance_norm_is_scaled_layer_norm eps x : (1 < n)%N ->
  let ratio := n.-1%:R / n%:R in
  ln_hat_sample eps x = scale (Num.sqrt ratio) (ln_hat (eps * ratio) x).
Proof.
move=> n_gt1 ratio; have n_gt0 := ltnW n_gt1; have n_neq0 := width_neq0 R n_gt0.
have pred_neq0 : n.-1%:R != 0 :> R by rewrite pnatr_eq0 -lt0n -subn1 subn_gt0.
have ratio_gt0 : 0 < ratio by rewrite divr_gt0 // lt0r ler0n ?pred_neq0 ?n_neq0.
apply/ffunP => i; rewrite !ffunE; set s := \sum_j _.
have -> : variance x + eps * ratio = ratio * (s / n.-1%:R + eps).
  rewrite mulrDr [ratio * eps]mulrC /variance -/s /ratio; congr (_ + _).
  by rewrite [RHS]mulrC mulrA divfK.
rewrite (sqrtrM _ (ltW ratio_gt0)) invfM [RHS]mulrCA; congr (_ * _).
by rewrite mulVKf // gt_eqF // sqrtr_gt0.
Qed.

Theorem sample_variance_changes_every_row eps x :
  (1 < n)%N -> 0 <= eps -> 0 < variance x -> ln_hat_sample eps x != ln_hat eps x.
Proof.
move=> n_gt1 eps_ge0 v_gt0; apply/eqP => /ffunP same.
have n_gt0 := ltnW n_gt1; set S := \sum_j (x j - mean x) ^+ 2 in same.
have S_gt0 : 0 < S by move: v_gt0; rewrite /variance pmulr_lgt0 // invr_gt0 ltr0n.
have [i xi_neq0] : exists i, x i - mean x != 0.
  apply/existsP; apply: contraLR (S_gt0); rewrite negb_exists -leNgt => /forallP all0.
  by rewrite /S big1 // => i _; have /eqP-> := negbNE (all0 i); rewrite expr0n.
have := same i; rewrite !ffunE => /(mulfI xi_neq0)/invr_inj/eqP.
rewrite eqr_sqrt ?addr_ge0 ?variance_ge0 ?divr_ge0 ?ler0n ?(ltW S_gt0) // => /eqP/addIr.
move=> /(mulfI (lt0r_neq0 S_gt0))/invr_inj/eqP.
by rewrite eqr_nat -{2}(prednK n_gt0) ltn_eqF.
Qed.
End Norms.

(* Such a row in two dimensions: (0, 1). *)
Theorem sample_variance_is_refuted (R : rcfType) (eps : R) :
  0 <= eps -> exists x : row R 2, ln_hat_sample eps x != ln_hat eps x.
Proof.
move=> eps_ge0; exists [ffun i => (val i)%:R]; apply: sample_variance_changes_every_row => //.
rewrite variance_in_one_pass mean_square_dot /mean /total /dot !big_ord_recl !big_ord0 !ffunE /=.
rewrite !add0r !addr0 !mul0r add0r mulr1 expr2 -{1}[2%:R^-1]mulr1 !mul1r -mulrBr.
by rewrite mulr_gt0 ?invr_gt0 ?ltr0n // subr_gt0 invf_lt1 ?ltr1n ?ltr0n.
Qed.

(* Welford's and Chan's algorithm: count, mean and sum of squared deviations of two sets give those
   of their union. Chan, Golub & LeVeque 1983. *)
Section Merging.
Variable R : rcfType.
Add Field scalars : (scalar_field R).
Implicit Types (s t : seq R).

Definition mean_of s : R := (\sum_(a <- s) a) / (size s)%:R.
Definition m2_of s : R := \sum_(a <- s) (a - mean_of s) ^+ 2.
Definition statistics s := ((size s)%:R, mean_of s, m2_of s) : R * R * R.

Definition chan_merge (left right : R * R * R) : R * R * R :=
  let: (n, mu, m2) := left in let: (n', mu', m2') := right in
  let delta := mu' - mu in let share := n' / (n + n') in
  (n + n', mu + delta * share, m2 + m2' + delta * delta * (n * share)).

Lemma sum_mean_of s : \sum_(a <- s) a = (size s)%:R * mean_of s.
Proof.
case: s => [|a s]; first by rewrite big_nil mul0r.
by rewrite /mean_of mulrCA divff ?mulr1 // pnatr_eq0.
Qed.
Lemma m2_one_pass s : m2_of s = \sum_(a <- s) a ^+ 2 - (size s)%:R * mean_of s ^+ 2.
Proof.
have gather (q N mu : R) : q + (- (2%:R * mu) * (N * mu) + N * mu ^+ 2) = q - N * mu ^+ 2.
  by by_ring R.
rewrite /m2_of (eq_bigr (fun a => a ^+ 2 + (- (2%:R * mean_of s) * a + mean_of s ^+ 2))).
  rewrite !big_split -mulr_sumr sum_mean_of big_const_seq count_predT iter_addr_0 /=.
  by rewrite -gather; congr (_ + (_ + _)); rewrite mulr_natl.
by move=> a _; by_ring R.
Qed.

Theorem chan_merge_is_union s t : chan_merge (statistics s) (statistics t) = statistics (s ++ t).
Proof.
case: s => [|a s]; first by rewrite /chan_merge /statistics /= /mean_of /m2_of !big_nil mul0r subr0
  !add0r mul0r mulr0 addr0; case: t => [|a t]; rewrite ?big_nil ?mul0r // divff ?mulr1 ?pnatr_eq0.
have size_neq0 : (size (a :: s))%:R + (size t)%:R <> 0 :> R.
  by apply/eqP; rewrite -natrD pnatr_eq0.
have mean_cat : mean_of ((a :: s) ++ t) =
    ((size (a :: s))%:R * mean_of (a :: s) + (size t)%:R * mean_of t) /
    ((size (a :: s))%:R + (size t)%:R).
  by rewrite -!sum_mean_of -natrD -size_cat -big_cat.
rewrite /chan_merge /statistics size_cat natrD.
congr (_, _, _); first by rewrite mean_cat; by_field R.
rewrite !m2_one_pass big_cat size_cat natrD mean_cat /=.
by by_field R.
Qed.

(* Any order of merging, one at a time (Welford) or as a tree (a GPU's warps): the leaves are the
   elements, and a leaf's statistics are (1, x, 0). *)
Inductive merge_order := Element of R | Merge of merge_order & merge_order.
Fixpoint elements order : seq R :=
  match order with Element a => [:: a] | Merge l r => elements l ++ elements r end.
Fixpoint merged order : R * R * R :=
  match order with Element a => (1, a, 0) | Merge l r => chan_merge (merged l) (merged r) end.

Theorem welford_is_two_pass_in_every_order order : merged order = statistics (elements order).
Proof.
elim: order => [a|l IHl r IHr] /=; last by rewrite IHl IHr chan_merge_is_union.
by rewrite /statistics /m2_of /mean_of !big_seq1 divr1 subrr expr0n.
Qed.

Lemma elements_gt0 order : (0 < size (elements order))%N.
Proof. by elim: order => //= l IHl r _; rewrite size_cat addn_gt0 IHl. Qed.

(* Every row has such an order, so the next theorem speaks of every row. *)
Theorem some_order_reads_any_row n (x : row R n) :
  (0 < n)%N -> exists order, elements order = codom x.
Proof.
move=> n_gt0; have : (0 < size (codom x))%N by rewrite size_codom card_ord.
elim: (codom x) => // a [|a' s] IH _; first by exists (Element a).
by have [//|order reads] := IH; exists (Merge (Element a) order); rewrite /= reads.
Qed.

Theorem welford_gives_mean_and_variance n (x : row R n) order :
  elements order = codom x -> merged order = (n%:R, mean x, n%:R * variance x).
Proof.
move=> is_row; rewrite welford_is_two_pass_in_every_order is_row /statistics size_codom card_ord.
have /(@width_neq0 R) n_neq0 : (0 < n)%N.
  by have := elements_gt0 order; rewrite is_row size_codom card_ord.
have mean_row : mean_of (codom x) = mean x.
  by rewrite /mean_of size_codom card_ord codomE big_map big_enum.
by rewrite /m2_of mean_row codomE big_map big_enum /variance mulrCA divff ?mulr1.
Qed.
End Merging.

(* No axiom: this prints "Closed under the global context". *)
Definition theorems_of_norms :=
  (@layer_norm_is_rms_norm_of_centred,
   @layer_norm_is_rms_norm_on_zero_mean_rows,
   @layer_norm_is_shift_invariant,
   @folded_shift_is_two_pass,
   @rms_norm_is_not_shift_invariant,
   @mean_square_of_shifted_row,
   @variance_in_one_pass,
   @one_pass_is_two_pass,
   @shifted_one_pass_is_two_pass,
   @rms_norm_of_scaled_row,
   @rms_norm_is_homogeneous_of_degree_zero,
   @rms_norm_is_odd,
   @variance_of_scaled_and_shifted_row,
   @layer_norm_is_affine_invariant,
   @layer_norm_is_odd,
   @rms_norm_of_zero_row,
   @rms_norm_of_a_direction,
   @normalised_row_has_bounded_energy,
   @normalised_element_is_at_most_sqrt_d,
   @gap_of_another_divisor,
   @sample_variance_norm_is_scaled_layer_norm,
   @sample_variance_changes_every_row,
   @sample_variance_is_refuted,
   @chan_merge_is_union,
   @welford_is_two_pass_in_every_order,
   @some_order_reads_any_row,
   @welford_gives_mean_and_variance).
Print Assumptions theorems_of_norms.
