(* Linear readers of a normalised row: what can be folded into their weights, and what the shared
   embedding of a tied head forbids. *)
From Normproof Require Import rows norms charts networks.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.Theory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Readers.
Variables (R : rcfType) (n m : nat).
Add Field scalars : (scalar_field R).
Implicit Types (A : 'I_m -> 'I_n -> R) (x w b z : row R n) (eps : R).

(* W (w z + b) = (W diag w) z + W b: the norm's weight and bias, folded into the reader. *)
Theorem affine_is_folded_into_the_reader A w b z :
  apply A (affine w b z) = apply (fun i j => A i j * w j) z + apply A b.
Proof.
have -> : affine w b z = mul w z + b by apply/ffunP => i; rewrite !ffunE mulrC.
rewrite applyD; congr (_ + _); apply/ffunP => i; rewrite !ffunE.
by apply: eq_bigr => j _; rewrite ffunE mulrA.
Qed.

(* A reader without a bias needs one: W b must not be forgotten. *)
Theorem reader_needs_the_new_bias eps w x (i : 'I_m) : (0 < n)%N -> exists A b,
  apply A (layer_norm eps w b x) != apply (fun i j => A i j * w j) (ln_hat eps x).
Proof.
move=> n_gt0; exists (fun _ j => (j == Ordinal n_gt0)%:R), (const 1).
rewrite affine_is_folded_into_the_reader -subr_eq0 addrAC subrr add0r.
apply/eqP => /ffunP/(_ i); rewrite ffunE (bigD1 (Ordinal n_gt0)) // !ffunE eqxx mulr1.
rewrite big1 ?addr0 => [/eqP|j /negPf ->]; last by rewrite mul0r.
by rewrite /= addr0 pnatr_eq0.
Qed.

(* FlashNorm (Graef et al. 2024): the matrix product need not wait for the mean square. *)
Theorem rms_scale_is_deferred_past_the_reader A w b eps x :
  apply A (rms_norm eps w b x) =
  scale (Num.sqrt (mean_square x + eps))^-1 (apply A (mul w x)) + apply A b.
Proof.
rewrite -applyZ -applyD; congr apply; apply/ffunP => i; rewrite !ffunE.
by by_ring R.
Qed.

(* LayerNorm's too, with the mean's share (W w) mean taken off before scaling. *)
Theorem layer_norm_scale_is_deferred_past_the_reader A w b eps x :
  apply A (layer_norm eps w b x) =
  scale (Num.sqrt (variance x + eps))^-1 (apply A (mul w x) - scale (mean x) (apply A w)) +
  apply A b.
Proof.
rewrite layer_norm_is_rms_norm_of_centred rms_scale_is_deferred_past_the_reader -variance_center.
have -> : mul w (center x) = mul w x + scale (- mean x) w.
  by apply/ffunP => i; rewrite !ffunE; by_ring R.
by rewrite applyD applyZ; congr (scale _ _ + _); apply/ffunP => i; rewrite !ffunE mulNr.
Qed.

(* A tied head reads with the token embedding, whose rows a conversion has centred: every logit
   shifts by the mean of its token's embedding times the sum of what is read. *)
Definition centred_rows A : 'I_m -> 'I_n -> R := fun i j => A i j - mean [ffun k => A i k].

Theorem tied_head_shift A x i :
  apply (centred_rows A) x i = apply A x i - mean [ffun k => A i k] * total x.
Proof.
rewrite !ffunE /total mulr_sumr -sumrB; apply: eq_bigr => j _.
by rewrite mulrBl.
Qed.

(* A reader of centred rows is a reader with centred rows. *)
Theorem centring_moves_into_the_reader A x : apply A (center x) = apply (centred_rows A) x.
Proof.
apply/ffunP => i; rewrite tied_head_shift !ffunE.
have -> : mean [ffun k => A i k] * total x = \sum_j A i j * mean x.
  rewrite total_is_width_times_mean -mulr_suml mulrA; congr (_ * _).
  rewrite mulrC -total_is_width_times_mean; apply: eq_bigr => j _.
  by rewrite ffunE.
by rewrite -sumrB; apply: eq_bigr => j _; rewrite ffunE mulrBr.
Qed.

(* On zero-sum rows, any multiple of 1^T may be added to a reader. *)
Theorem reader_may_add_a_multiple_of_ones A (a : row R m) x : total x = 0 ->
  apply (fun i j => A i j + a i) x = apply A x.
Proof.
move=> x0; apply/ffunP => i; transitivity (apply A x i + a i * total x).
  by rewrite !ffunE /total mulr_sumr -big_split; apply: eq_bigr => j _; rewrite mulrDl.
by rewrite x0 mulr0 addr0.
Qed.

Lemma total_layer_norm eps w b x :
  total (layer_norm eps w b x) =
  (Num.sqrt (mean_square (center x) + eps))^-1 * dot w (center x) + total b.
Proof.
rewrite -dotZr -rms_hat_scale -ln_hat_center -total_mul -totalD.
by congr total; apply/ffunP => i; rewrite !ffunE mulrC.
Qed.

(* What is read is LayerNorm's output. Its sum is the same for every row exactly if the weight is
   constant; then the shift of the logits is a per-token bias. *)
Theorem tied_head_shift_is_a_bias_exactly_for_constant_weight eps w b : 0 <= eps ->
  (exists k, forall x, total (layer_norm eps w b x) = k) <-> exists c, w = const c.
Proof.
move=> eps_ge0; split=> [[k same]|[c wc]]; last first.
  exists (total b) => x.
  by rewrite total_layer_norm wc dot_constl centred_row_sums_to_zero !mulr0 add0r.
apply/centring_kills_exactly_the_constants/dot_self_eq0.
have := same w; rewrite -(same 0) !total_layer_norm => /addIr.
have -> : center 0 = 0 :> row R n by apply: center_zero_sum; apply: big1 => i _; rewrite ffunE.
have -> : dot w 0 = 0 by apply: big1 => i _; rewrite ffunE mulr0.
rewrite mulr0 -[dot w _]dotC -dot_center => /eqP; rewrite mulf_eq0 invr_eq0 => /orP[|/eqP //].
rewrite sqrtr_eq0 => radicand_le0; apply/eqP; rewrite dot_self_eq_width.
have -> : mean_square (center w) = 0; last by rewrite mulr0.
by apply/eqP; rewrite eq_le mean_square_ge0 andbT (le_trans _ radicand_le0) // ler_addl.
Qed.

(* The rows w and -w show it, for every other weight. *)
Theorem gap_of_the_rows_weight_and_minus_weight eps w b :
  total (layer_norm eps w b w) - total (layer_norm eps w b (- w)) =
  2%:R * dot (center w) (rms_hat eps (center w)).
Proof.
rewrite !total_layer_norm centerN dotNr rms_hat_scale dotZr dot_center.
rewrite !mean_square_dot dotNl dotNr opprK [dot w _]dotC.
by by_ring R.
Qed.

Theorem no_bias_repairs_another_weight eps w b : 0 <= eps -> center w != 0 ->
  total (layer_norm eps w b w) != total (layer_norm eps w b (- w)).
Proof.
move=> eps_ge0 Pw_neq0; rewrite -subr_eq0 gap_of_the_rows_weight_and_minus_weight.
rewrite mulf_neq0 ?pnatr_eq0 // rms_hat_scale dotZr.
have energy_neq0 : dot (center w) (center w) != 0 by apply: contra_neq Pw_neq0; exact: dot_self_eq0.
rewrite mulf_neq0 // invr_neq0 // gt_eqF // sqrtr_gt0 ltr_paddr // lt0r mean_square_ge0 andbT.
by move: energy_neq0; rewrite dot_self_eq_width mulf_eq0 negb_or => /andP[].
Qed.
End Readers.

(* A writer is centred over its outputs. A mean over its inputs leaves the output's sum. *)
Theorem mean_over_inputs_does_not_centre (R : rcfType) :
  exists (A : 'I_2 -> 'I_2 -> R) (y : row R 2),
  total (apply (centred_rows A) y) != total (apply (centred_columns A) y).
Proof.
pose A (i j : 'I_2) : R := ((val i == 0%N) && (val j == 0%N))%:R.
pose y : row R 2 := [ffun i => (val i == 0%N)%:R]; exists A, y.
rewrite -center_apply centred_row_sums_to_zero /total !big_ord_recl !big_ord0 !ffunE.
rewrite !big_ord_recl !big_ord0 !ffunE /centred_rows /mean /total.
rewrite !big_ord_recl !big_ord0 !ffunE /A /=.
rewrite !mulr0 !addr0 !mul0r !subr0 !mulr1 !mul1r !addr0.
by rewrite subr_eq0 eq_sym invr_eq1 (eqr_nat R 2 1).
Qed.

Section ChartReaders.
Variables (R : rcfType) (n m : nat).
Add Field scalars : (scalar_field R).
Implicit Types (A : 'I_m -> 'I_n.+1 -> R) (x : row R n.+1) (y : row R n) (eps : R).

(* Jiang et al. 2023, eq. 6: on zero-sum rows A may be replaced by A - a_d 1^T, whose last column
   is zero; the reader then needs n of the n + 1 elements. *)
Theorem reader_of_zero_sum_rows_needs_no_last_column A x : total x = 0 ->
  apply A x = apply (fun i j => A i (lift ord_max j) - A i ord_max) (compress x).
Proof.
rewrite total_last => /eqP; rewrite addrC addr_eq0 => /eqP last_x.
apply/ffunP => i; rewrite !ffunE big_ord_recr /= last_x mulrN /total mulr_sumr -sumrB.
by apply: eq_bigr => j _; rewrite !ffunE lift_max mulrBl.
Qed.

Theorem reader_in_the_isometric_chart A y :
  apply A (widen y) = apply (fun i => narrow [ffun j => A i j]) y.
Proof.
apply/ffunP => i; rewrite ffunE [RHS]ffunE; transitivity (dot [ffun j => A i j] (widen y)).
  by apply: eq_bigr => j _; rewrite [in RHS]ffunE.
by rewrite dotC narrow_is_transpose_of_widen dotC.
Qed.

(* And a writer. *)
Theorem writer_in_the_isometric_chart (A : 'I_n.+1 -> 'I_m -> R) (y : row R m) :
  narrow (apply A y) = apply (fun i j => narrow [ffun k => A k j] i) y.
Proof.
have total_kept : total (compress (apply A y)) =
    \sum_j total (compress [ffun k => A k j]) * y j.
  rewrite /total (eq_bigr (fun i => \sum_j A (lift ord_max i) j * y j)) => [|i _]; last first.
    by rewrite !ffunE.
  rewrite exchange_big; apply: eq_bigr => j _; rewrite mulr_suml; apply: eq_bigr => i _.
  by rewrite !ffunE.
apply/ffunP => i; rewrite /narrow total_kept !ffunE !mulr_sumr -!sumrB; apply: eq_bigr => j _.
by rewrite !ffunE; by_ring R.
Qed.
End ChartReaders.

(* No axiom: this prints "Closed under the global context". *)
Definition theorems_of_readers :=
  (@affine_is_folded_into_the_reader,
   @reader_needs_the_new_bias,
   @rms_scale_is_deferred_past_the_reader,
   @layer_norm_scale_is_deferred_past_the_reader,
   @tied_head_shift,
   @centring_moves_into_the_reader,
   @reader_may_add_a_multiple_of_ones,
   @tied_head_shift_is_a_bias_exactly_for_constant_weight,
   @gap_of_the_rows_weight_and_minus_weight,
   @no_bias_repairs_another_weight,
   @mean_over_inputs_does_not_centre,
   @reader_of_zero_sum_rows_needs_no_last_column,
   @reader_in_the_isometric_chart,
   @writer_in_the_isometric_chart).
Print Assumptions theorems_of_readers.
