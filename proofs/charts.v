(* Charts of the zero-sum rows: zero-sum rows of width d = n + 1 written with n numbers.

   Two charts: CRMSNorm's (drop the last element, put back minus the sum of the others), and the
   isometric one (a Householder reflection, cut to n columns), which makes LayerNorm of width d an
   ordinary RMSNorm of width d - 1.  Last, the doubled row (x, -x). *)
From Normproof Require Import rows norms.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.Theory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* A row of width n + 1 from its first n elements and its last one. *)
Section LastElement.
Variables (R : rcfType) (n : nat).
Implicit Types (x y : row R n.+1) (z u : row R n) (c : R).

Definition compress x : row R n := [ffun i => x (lift ord_max i)].
Definition extend z c : row R n.+1 := [ffun i => oapp z c (unlift ord_max i)].

Lemma extend_lift z c i : extend z c (lift ord_max i) = z i.
Proof. by rewrite ffunE liftK. Qed.
Lemma extend_last z c : extend z c ord_max = c.
Proof. by rewrite ffunE unlift_none. Qed.
Lemma rowP_last x y : compress x = compress y -> x ord_max = y ord_max -> x = y.
Proof.
move=> /ffunP first_eq last_eq; apply/ffunP => i; case: (unliftP ord_max i) => [j|] -> //.
by have := first_eq j; rewrite !ffunE.
Qed.
Lemma compress_extend z c : compress (extend z c) = z.
Proof. by apply/ffunP => i; rewrite ffunE extend_lift. Qed.

Lemma compressD x y : compress (x + y) = compress x + compress y.
Proof. by apply/ffunP => i; rewrite !ffunE. Qed.

Lemma lift_max (i : 'I_n) : lift ord_max i = widen_ord (leqnSn n) i.
Proof. by apply: val_inj; rewrite /= /bump leqNgt ltn_ord. Qed.
Lemma total_last x : total x = total (compress x) + x ord_max.
Proof.
rewrite /total big_ord_recr; congr (_ + _); apply: eq_bigr => i _.
by rewrite ffunE lift_max.
Qed.
Lemma dot_last x y : dot x y = dot (compress x) (compress y) + x ord_max * y ord_max.
Proof.
rewrite /dot big_ord_recr; congr (_ + _); apply: eq_bigr => i _.
by rewrite !ffunE lift_max.
Qed.
End LastElement.

(* ---- CRMSNorm (Jiang et al. 2023) ---- *)
Section Compressed.
Variables (R : rcfType) (n : nat).
Add Field scalars : (scalar_field R).
Implicit Types (x w b : row R n.+1) (z u : row R n) (c eps : R).

Definition decompress z : row R n.+1 := extend z (- total z).

(* The row (z, -sum z), normalised, and read off its first n elements. *)
Definition crms_hat eps z : row R n :=
  [ffun i => z i / Num.sqrt ((\sum_j z j ^+ 2 + total z ^+ 2) / n.+1%:R + eps)].

Theorem decompressed_row_sums_to_zero z : total (decompress z) = 0.
Proof. by rewrite total_last compress_extend extend_last subrr. Qed.

(* Nothing is lost: the two maps are inverse bijections between all rows of width n and the
   zero-sum rows of width n + 1. *)
Theorem compress_inverts_decompress z : compress (decompress z) = z.
Proof. exact: compress_extend. Qed.

Theorem decompress_inverts_compress x : total x = 0 -> decompress (compress x) = x.
Proof.
rewrite total_last => /eqP; rewrite addrC addr_eq0 => /eqP last_x.
by apply: rowP_last; rewrite ?compress_extend ?extend_last.
Qed.

Lemma decompressZ c z : decompress (scale c z) = scale c (decompress z).
Proof.
apply: rowP_last; last by rewrite extend_last [RHS]ffunE extend_last totalZ mulrN.
by rewrite compress_extend; apply/ffunP => i; rewrite !ffunE liftK.
Qed.

(* D^T D = I + 1 1^T. *)
Theorem decompressed_inner_product z u :
  dot (decompress z) (decompress u) = dot z u + total z * total u.
Proof. by rewrite dot_last !compress_extend !extend_last mulrNN. Qed.

Theorem adjoint_of_decompress z u c : dot (decompress z) (extend u c) = dot z (u - const c).
Proof.
rewrite dot_last !compress_extend !extend_last dotDr dotNr dot_constr.
by by_ring R.
Qed.

Theorem crms_norm_is_rms_norm_in_a_chart eps z :
  decompress (crms_hat eps z) = rms_hat eps (decompress z).
Proof.
rewrite rms_hat_scale mean_square_dot decompressed_inner_product -decompressZ; congr decompress.
by apply/ffunP => i; rewrite !ffunE dot_self -expr2 mulrC.
Qed.

(* So a LayerNorm of any row is a CRMSNorm of the centred and compressed row. *)
Theorem layer_norm_is_crms_norm_of_compressed eps w b x :
  layer_norm eps w b x = affine w b (decompress (crms_hat eps (compress (center x)))).
Proof.
rewrite crms_norm_is_rms_norm_in_a_chart decompress_inverts_compress ?centred_row_sums_to_zero //.
exact: layer_norm_is_rms_norm_of_centred.
Qed.

(* The chart is not an isometry: |D z|^2 lies between |z|^2 and d |z|^2, and both are attained, so
   its condition number is sqrt d. *)
Theorem decompress_stretches_at_least_by_one z : dot z z <= dot (decompress z) (decompress z).
Proof. by rewrite decompressed_inner_product ler_addl -expr2 sqr_ge0. Qed.

Theorem decompress_stretches_at_most_by_sqrt_d z :
  dot (decompress z) (decompress z) <= n.+1%:R * dot z z.
Proof.
rewrite decompressed_inner_product natr_succ mulrDl mul1r addrC ler_add2r -expr2.
exact: sum_squared_le.
Qed.

Theorem largest_stretch_is_attained :
  dot (decompress (const 1)) (decompress (const 1)) = n.+1%:R * dot (const 1) (const 1 : row R n).
Proof. by rewrite decompressed_inner_product !dot_constl total_const natr_succ; by_ring R. Qed.

Theorem zero_sum_rows_are_not_stretched z :
  total z = 0 -> dot (decompress z) (decompress z) = dot z z.
Proof. by move=> z0; rewrite decompressed_inner_product z0 mulr0 addr0. Qed.
End Compressed.

(* By (1, ..., 1, -n - 1), among others. For d = 2 every stretch is sqrt 2. *)
Theorem smallest_stretch_is_attained (R : rcfType) n :
  exists2 z : row R n.+2, z != 0 & dot (decompress z) (decompress z) = dot z z.
Proof.
exists (decompress (const 1)); last first.
  exact/zero_sum_rows_are_not_stretched/decompressed_row_sums_to_zero.
apply/eqP => /(congr1 (@compress R n.+1)) /ffunP/(_ ord0).
by rewrite compress_inverts_decompress !ffunE => /eqP; rewrite oner_eq0.
Qed.

(* ---- The isometric chart ----
   Q = the first n columns of the Householder reflection that takes e_d to -(1, ..., 1)/sqrt d.
   With s = 1/sqrt d and c = (1 - s)/n:  Q y = (y - c sum y, -s sum y),
   and Q^T x = (x_1, ..., x_n) - c (x_1 + ... + x_n) - s x_d. *)
Section Isometric.
Variables (R : rcfType) (n : nat).
Add Field scalars : (scalar_field R).
Implicit Types (x : row R n.+1) (y z : row R n) (c eps : R).

Definition householder_s : R := (Num.sqrt n.+1%:R)^-1.
Definition householder_c : R := (1 - householder_s) / n%:R.
Local Notation s := householder_s.
Local Notation c := householder_c.

Definition widen y : row R n.+1 := extend (y - const (c * total y)) (- s * total y).
Definition narrow x : row R n :=
  compress x - const (c * total (compress x)) - const (s * x ord_max).

Lemma householder_s_squared : n.+1%:R * (s * s) = 1.
Proof.
rewrite -expr2 exprVn sqr_sqrtr ?ler0n // divff //.
by rewrite pnatr_eq0.
Qed.
Lemma householder_c_times_n : n%:R * c = 1 - s.
Proof.
case: (posnP n) => [n0|n_gt0]; last by rewrite mulrCA divff ?mulr1 ?width_neq0.
by rewrite /householder_c /householder_s n0 sqrtr1 invr1 subrr mul0r mulr0.
Qed.
(* The reflection's own equation, which needs n > 0. *)
Lemma householder_balance : (0 < n)%N -> s * s = c * (1 + s).
Proof.
move=> /(@width_neq0 R) n_neq0; apply: (mulfI n_neq0); rewrite [RHS]mulrA householder_c_times_n.
apply: (addIr (s * s)).
have -> : n%:R * (s * s) + s * s = n.+1%:R * (s * s) by rewrite natr_succ; by_ring R.
by rewrite householder_s_squared; by_ring R.
Qed.

Theorem widened_row_sums_to_zero y : total (widen y) = 0.
Proof.
rewrite total_last compress_extend extend_last totalD totalN total_const mulrA.
by rewrite householder_c_times_n; by_ring R.
Qed.

Theorem narrow_is_transpose_of_widen y x : dot (widen y) x = dot y (narrow x).
Proof.
rewrite dot_last compress_extend extend_last !dotDl !dotDr !dotNl !dotNr dot_constl !dot_constr.
by by_ring R.
Qed.

(* Q^T Q = I: the columns of Q are orthonormal. *)
Theorem narrow_inverts_widen y : narrow (widen y) = y.
Proof.
apply/ffunP => i; have /householder_balance balance := index_gt0 i.
rewrite /narrow compress_extend extend_last totalD totalN total_const mulrA householder_c_times_n.
rewrite !ffunE; set S := total y.
have -> : y i - c * S - c * (S - (1 - s) * S) - s * (- s * S) =
    y i + (s * s - c * (1 + s)) * S by by_ring R.
by rewrite balance subrr mul0r addr0.
Qed.

(* Q Q^T = P, the centring: Q is onto the zero-sum rows. *)
Theorem widen_inverts_narrow x : widen (narrow x) = center x.
Proof.
have total_narrow : total (narrow x) = s * total (compress x) - n%:R * s * x ord_max.
  rewrite /narrow !totalD !totalN !total_const (mulrA _ c) householder_c_times_n.
  by by_ring R.
have mean_x : mean x = s * s * (total (compress x) + x ord_max).
  rewrite -total_last total_is_width_times_mean mulrA [s * s * _]mulrC householder_s_squared.
  by rewrite mul1r.
apply: rowP_last.
  rewrite compress_extend total_narrow; apply/ffunP => i.
  have /householder_balance balance := index_gt0 i.
  rewrite !ffunE mean_x; set a := x _; set S := total _; set l := x ord_max.
  have -> : a - c * S - s * l - c * (s * S - n%:R * s * l) =
      a - c * (1 + s) * S - s * l + n%:R * c * s * l by by_ring R.
  by rewrite -balance householder_c_times_n; by_ring R.
rewrite extend_last total_narrow ffunE mean_x; set S := total _; set l := x ord_max.
have -> : - s * (s * S - n%:R * s * l) = n.+1%:R * (s * s) * l - s * s * (S + l).
  by rewrite natr_succ; by_ring R.
by rewrite householder_s_squared mul1r.
Qed.

Theorem widen_is_an_isometry y z : dot (widen y) (widen z) = dot y z.
Proof. by rewrite narrow_is_transpose_of_widen narrow_inverts_widen. Qed.

Lemma widenD y z : widen (y + z) = widen y + widen z.
Proof.
apply: rowP_last; last by rewrite [RHS]ffunE !extend_last totalD; by_ring R.
rewrite compress_extend; apply/ffunP => i; rewrite !ffunE !liftK /= !ffunE totalD.
by by_ring R.
Qed.
Theorem narrow_is_additive x x' : narrow (x + x') = narrow x + narrow x'.
Proof. by rewrite /narrow compressD totalD; apply/ffunP => i; rewrite !ffunE; by_ring R. Qed.
Lemma widenZ a y : widen (scale a y) = scale a (widen y).
Proof.
apply: rowP_last; last by rewrite [RHS]ffunE !extend_last totalZ; by_ring R.
rewrite compress_extend; apply/ffunP => i; rewrite !ffunE liftK /= !ffunE totalZ.
by by_ring R.
Qed.
Lemma narrowZ a x : narrow (scale a x) = scale a (narrow x).
Proof.
have compressZ : compress (scale a x) = scale a (compress x).
  by apply/ffunP => i; rewrite !ffunE.
rewrite /narrow compressZ totalZ; apply/ffunP => i; rewrite !ffunE.
by by_ring R.
Qed.

(* What RMSNorm of width n becomes when its sum of squares is divided by n + 1 instead of n. *)
Definition narrow_hat eps y : row R n :=
  [ffun i => y i / Num.sqrt ((\sum_j y j ^+ 2) / n.+1%:R + eps)].
Let ratio : R := n.+1%:R / n%:R.

Theorem narrow_radicand eps y : (0 < n)%N ->
  (\sum_j y j ^+ 2) / n.+1%:R + eps = (mean_square y + eps * ratio) / ratio.
Proof.
move=> /(@width_neq0 R)/eqP n_neq0; rewrite /mean_square /ratio natr_succ.
have succ_neq0 : n%:R + 1 <> 0 :> R by apply/eqP; rewrite -natr_succ pnatr_eq0.
by by_field R.
Qed.

Theorem narrow_rms_norm_is_scaled_rms_norm eps y :
  narrow_hat eps y = scale (Num.sqrt ratio) (rms_hat (eps * ratio) y).
Proof.
apply/ffunP => i; rewrite !ffunE; have n_gt0 := index_gt0 i.
have ratio_gt0 : 0 < ratio by rewrite divr_gt0 ?ltr0n.
have -> : mean_square y + eps * ratio = ratio * ((\sum_j y j ^+ 2) / n.+1%:R + eps).
  rewrite /mean_square /ratio mulrDr; congr (_ + _); last by rewrite mulrC.
  by rewrite [RHS]mulrC mulrA divfK ?pnatr_eq0.
rewrite sqrtrM ?ltW // invfM [RHS]mulrCA; congr (_ * _).
by rewrite mulVKf ?gt_eqF ?sqrtr_gt0.
Qed.

Theorem variance_in_the_isometric_chart x :
  variance x = (\sum_j narrow x j ^+ 2) / n.+1%:R.
Proof.
by rewrite variance_center mean_square_dot -widen_inverts_narrow widen_is_an_isometry dot_self.
Qed.

Theorem layer_norm_is_narrow_norm_in_the_isometric_chart eps x :
  ln_hat eps x = widen (narrow_hat eps (narrow x)).
Proof.
rewrite ln_hat_center rms_hat_scale -variance_center variance_in_the_isometric_chart.
rewrite -widen_inverts_narrow -widenZ.
by congr widen; apply/ffunP => i; rewrite !ffunE mulrC.
Qed.

(* LayerNorm of width d is an ordinary RMSNorm of width d - 1, in the isometric chart:
   LN_d(x; eps) = sqrt(d/(d-1)) Q RMS_{d-1}(Q^T x; eps d/(d-1)). *)
Theorem layer_norm_is_narrow_rms_norm eps x :
  ln_hat eps x = scale (Num.sqrt ratio) (widen (rms_hat (eps * ratio) (narrow x))).
Proof.
rewrite -widenZ -narrow_rms_norm_is_scaled_rms_norm.
exact: layer_norm_is_narrow_norm_in_the_isometric_chart.
Qed.

(* The converse: RMSNorm of width n is a LayerNorm of width n + 1,
   RMS_n(y; eps) = sqrt(n/(n+1)) Q^T LN_{n+1}(Q y; eps n/(n+1)). *)
Theorem rms_norm_is_wide_layer_norm eps y : (0 < n)%N ->
  rms_hat eps y =
  scale (Num.sqrt (n%:R / n.+1%:R)) (narrow (ln_hat (eps * (n%:R / n.+1%:R)) (widen y))).
Proof.
move=> n_gt0; have inverse : n%:R / n.+1%:R = ratio^-1 by rewrite invf_div.
have ratio_gt0 : 0 < ratio by rewrite divr_gt0 ?ltr0n.
rewrite inverse layer_norm_is_narrow_rms_norm narrow_inverts_widen narrowZ narrow_inverts_widen.
rewrite scaleA -sqrtrM ?invr_ge0 ?ltW // mulVf ?gt_eqF // sqrtr1 scale1.
by rewrite mulfVK ?gt_eqF.
Qed.
End Isometric.

(* ---- The doubled row ---- *)
Section Doubled.
Variables (R : rcfType) (n : nat).
Implicit Types (x y : row R n) (eps : R).

Definition side_by_side x y : row R (n + n) :=
  [ffun i => match split i with inl j => x j | inr j => y j end].

Lemma total_side_by_side x y : total (side_by_side x y) = total x + total y.
Proof.
rewrite /total big_split_ord; congr (_ + _); apply: eq_bigr => i _; rewrite ffunE.
  by rewrite (unsplitK (inl i)).
by rewrite (unsplitK (inr i)).
Qed.
Lemma dot_side_by_side x y : dot (side_by_side x y) (side_by_side x y) = dot x x + dot y y.
Proof.
rewrite /dot big_split_ord; congr (_ + _); apply: eq_bigr => i _; rewrite !ffunE.
  by rewrite (unsplitK (inl i)).
by rewrite (unsplitK (inr i)).
Qed.

Lemma side_by_sideD x y x' y' :
  side_by_side (x + x') (y + y') = side_by_side x y + side_by_side x' y'.
Proof. by apply/ffunP => i; rewrite !ffunE; case: (split i) => j; rewrite ffunE. Qed.

Definition left_side (xy : row R (n + n)) : row R n := [ffun i => xy (lshift n i)].
Lemma left_side_by_side x y : left_side (side_by_side x y) = x.
Proof. by apply/ffunP => i; rewrite !ffunE (unsplitK (inl i)). Qed.

Lemma total_of_doubled_row x : total (side_by_side x (- x)) = 0.
Proof. by rewrite total_side_by_side totalN subrr. Qed.

Theorem variance_of_doubled_row x : variance (side_by_side x (- x)) = mean_square x.
Proof.
rewrite variance_center center_zero_sum ?total_of_doubled_row //.
rewrite !mean_square_dot dot_side_by_side dotNl dotNr opprK natrD.
rewrite -!mulr2n -[dot x x *+ 2]mulr_natl -[n%:R *+ 2]mulr_natl.
by rewrite -mulf_div divff ?mul1r ?pnatr_eq0.
Qed.

(* LN_{2d}(x, -x) = (RMS_d x, -RMS_d x), with the same eps and no factor. *)
Theorem layer_norm_of_doubled_row_is_rms_norm eps x :
  ln_hat eps (side_by_side x (- x)) = side_by_side (rms_hat eps x) (- rms_hat eps x).
Proof.
apply/ffunP => i; rewrite ffunE variance_of_doubled_row /mean total_of_doubled_row mul0r subr0.
by rewrite !ffunE; case: (split i) => j; rewrite !ffunE // mulNr.
Qed.
End Doubled.

(* No axiom: this prints "Closed under the global context". *)
Definition theorems_of_charts :=
  (@decompressed_row_sums_to_zero,
   @compress_inverts_decompress,
   @decompress_inverts_compress,
   @decompressed_inner_product,
   @adjoint_of_decompress,
   @crms_norm_is_rms_norm_in_a_chart,
   @layer_norm_is_crms_norm_of_compressed,
   @decompress_stretches_at_least_by_one,
   @decompress_stretches_at_most_by_sqrt_d,
   @largest_stretch_is_attained,
   @zero_sum_rows_are_not_stretched,
   @smallest_stretch_is_attained,
   @widened_row_sums_to_zero,
   @narrow_is_transpose_of_widen,
   @narrow_inverts_widen,
   @widen_inverts_narrow,
   @widen_is_an_isometry,
   @narrow_is_additive,
   @narrow_radicand,
   @narrow_rms_norm_is_scaled_rms_norm,
   @variance_in_the_isometric_chart,
   @layer_norm_is_narrow_norm_in_the_isometric_chart,
   @layer_norm_is_narrow_rms_norm,
   @rms_norm_is_wide_layer_norm,
   @variance_of_doubled_row,
   @layer_norm_of_doubled_row_is_rms_norm).
Print Assumptions theorems_of_charts.
