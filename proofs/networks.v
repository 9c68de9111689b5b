(* Whole Transformers: a Pre-LN network and its conversions, for any number of blocks and tokens.

   A Pre-LN residual stream is x_{l+1} = x_l + f_l(LN_l(x_l)), with LN_l on each token's row and f_l
   any function at all of the normalised rows of all tokens together; the output is h(LN(x_L)). *)
From Normproof Require Import rows norms charts.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.Theory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* What one block adds to the stream is its branch; a trunk is any number of blocks in turn. *)
Fixpoint trunk (S : zmodType) (block : Type) (branch : block -> S -> S) (blocks : seq block)
    (x : S) : S :=
  if blocks is f :: rest then trunk branch rest (x + branch f x) else x.

(* The induction over the blocks, once for all conversions: an additive phi takes the states of
   one network to those of the other. *)
Lemma trunk_conjugate (S S' : zmodType) (block : Type) (phi : S -> S')
    (branch : block -> S -> S) (branch' : block -> S' -> S') :
  {morph phi : x y / x + y} -> (forall f x, branch' f (phi x) = phi (branch f x)) ->
  forall blocks x, trunk branch' blocks (phi x) = phi (trunk branch blocks x).
Proof. by move=> phiD same; elim=> //= f blocks IH x; rewrite same -phiD IH. Qed.

(* The rows of all tokens, and a function of rows applied to each. *)
Notation stream R tokens n := {ffun 'I_tokens -> row R n}.
Definition each (R : rcfType) tokens n m (f : row R n -> row R m) (x : stream R tokens n) :
  stream R tokens m := [ffun t => f (x t)].

Section Each.
Variables (R : rcfType) (tokens : nat).

Lemma eachD n m (f : row R n -> row R m) :
  {morph f : x y / x + y} -> {morph @each R tokens n m f : x y / x + y}.
Proof. by move=> fD x y; apply/ffunP => t; rewrite !ffunE fD. Qed.
Lemma each_comp n m p (f : row R m -> row R p) (g : row R n -> row R m) (x : stream R tokens n) :
  each f (each g x) = each (f \o g) x.
Proof. by apply/ffunP => t; rewrite !ffunE. Qed.
Lemma eq_each n m (f g : row R n -> row R m) : f =1 g -> @each R tokens n m f =1 each g.
Proof. by move=> fg x; apply/ffunP => t; rewrite !ffunE fg. Qed.
Lemma each_id n (x : stream R tokens n) : each id x = x.
Proof. by apply/ffunP => t; rewrite ffunE. Qed.
End Each.

(* A block: its norm's eps, weight and bias, and its body, an arbitrary function of the normalised
   rows: attention in one block, an MLP in the next. A dropout mask or a LayerScale on the write is
   part of it, so a conversion centres after them. *)
Record block (R : rcfType) (tokens n : nat) := Block {
  block_eps : R; block_weight : row R n; block_bias : row R n;
  body : stream R tokens n -> stream R tokens n }.

(* A network of rows of m numbers, with bodies for rows of n: the norm reads a row of the stream,
   and the body's output goes through write before it is added. In the original networks n = m and
   write does nothing. *)
Section Networks.
Variables (R : rcfType) (tokens n m : nat) (logits : Type).
Variables (norm : R -> row R n -> row R n -> row R m -> row R n) (write : row R n -> row R m).

Definition branch (f : block R tokens n) (x : stream R tokens m) : stream R tokens m :=
  each write (body f (each (norm (block_eps f) (block_weight f) (block_bias f)) x)).
Definition final_stream blocks (x : stream R tokens m) := trunk branch blocks x.
Definition network (head : stream R tokens n -> logits) eps w b blocks (x : stream R tokens m) :=
  head (each (norm eps w b) (final_stream blocks x)).
End Networks.

(* If a chart is additive, and the new norm in the chart is the old norm, then the new network's
   stream is the chart of the old one's, and the outputs are equal, whatever the head. *)
Section Conversion.
Variables (R : rcfType) (tokens n m : nat).
Variables (norm : R -> row R n -> row R n -> row R n -> row R n).
Variables (norm' : R -> row R n -> row R n -> row R m -> row R n) (chart : row R n -> row R m).
Hypothesis chartD : {morph chart : x y / x + y}.
Hypothesis norm_in_chart : forall eps w b x, norm' eps w b (chart x) = norm eps w b x.
Implicit Types (blocks : seq (block R tokens n)) (x : stream R tokens n).

Lemma converted_stream blocks x :
  final_stream norm' chart blocks (each chart x) = each chart (final_stream norm id blocks x).
Proof.
apply: trunk_conjugate => [|f y]; first exact: eachD.
rewrite /branch each_id each_comp; congr (each chart (body f _)).
by apply: eq_each => z; apply: norm_in_chart.
Qed.

Lemma converted_network logits (head : stream R tokens n -> logits) eps w b blocks x :
  network norm' chart head eps w b blocks (each chart x) = network norm id head eps w b blocks x.
Proof.
rewrite /network converted_stream each_comp; congr head.
by apply: eq_each => z; apply: norm_in_chart.
Qed.
End Conversion.

Section FullWidth.
Variables (R : rcfType) (tokens n : nat) (logits : Type) (head : stream R tokens n -> logits).
Implicit Types (blocks : seq (block R tokens n)) (x : stream R tokens n) (w b : row R n) (eps : R).

Local Notation ln := (@layer_norm R n).
Local Notation rms := (@rms_norm R n).
Local Notation P := (@center R n).

(* The conversion of a Pre-LN network: RMSNorm for LayerNorm, and every write centred. Then
   x'_l = P x_l after any number of blocks, ... *)
Theorem converted_stream_is_the_centred_stream blocks x :
  final_stream rms P blocks (each P x) = each P (final_stream ln id blocks x).
Proof.
apply: converted_stream => [|eps w b y]; first exact: centring_is_additive.
by rewrite layer_norm_is_rms_norm_of_centred.
Qed.

(* ... and the outputs are equal, whatever the head does with its normalised rows. *)
Theorem pre_ln_network_is_pre_rms_network eps w b blocks x :
  network rms P head eps w b blocks (each P x) = network ln id head eps w b blocks x.
Proof.
apply: converted_network => [|eps' w' b' y]; first exact: centring_is_additive.
by rewrite layer_norm_is_rms_norm_of_centred.
Qed.

(* Said without write: the new network is a Pre-RMSNorm network like any other, whose bodies are
   those of the old one, centred. *)
Definition with_centred_body (f : block R tokens n) :=
  Block (block_eps f) (block_weight f) (block_bias f) (fun z => each P (body f z)).

Theorem pre_ln_network_is_a_pre_rms_network_with_centred_bodies eps w b blocks x :
  network rms id head eps w b [seq with_centred_body f | f <- blocks] (each P x) =
  network ln id head eps w b blocks x.
Proof.
rewrite -pre_ln_network_is_pre_rms_network /network /final_stream; congr (head (each _ _)).
elim: blocks (each P x) => //= f blocks IH y.
by rewrite IH /branch each_id.
Qed.

(* Where every write sums to zero already, as once the writers' weights have been centred, the two
   norms may be exchanged and nothing else changes. *)
Fixpoint zero_sum_writes blocks :=
  if blocks is f :: rest then (forall z t, total (body f z t) = 0) /\ zero_sum_writes rest
  else True.

Theorem zero_mean_stream_may_exchange_norms blocks x :
  zero_sum_writes blocks -> (forall t, total (x t) = 0) ->
  final_stream rms id blocks x = final_stream ln id blocks x.
Proof.
rewrite /final_stream; elim: blocks x => //= f blocks IH x [zero_writes zero_rest] x0.
have -> : branch ln id f x = branch rms id f x.
  rewrite /branch; congr (each id (body f _)); apply/ffunP => t; rewrite !ffunE.
  exact: layer_norm_is_rms_norm_on_zero_mean_rows.
by apply: IH => // t; rewrite ffunE totalD x0 [_ t]ffunE zero_writes addr0.
Qed.

(* Such blocks exist, whatever is to be computed: those whose bodies are centred. *)
Theorem centred_bodies_write_zero_sums blocks :
  zero_sum_writes [seq with_centred_body f | f <- blocks].
Proof.
elim: blocks => //= f blocks IH; split=> // z t.
by rewrite ffunE centred_row_sums_to_zero.
Qed.

(* RMSNorm of width n as LayerNorm of width n + 1, in the isometric chart. *)
Definition wide_ln eps w b (x : row R n.+1) : row R n :=
  affine w b (scale (Num.sqrt (n%:R / n.+1%:R)) (narrow (ln_hat (eps * (n%:R / n.+1%:R)) x))).

Lemma wide_lnE eps w b y : (0 < n)%N -> wide_ln eps w b (widen y) = rms eps w b y.
Proof. by move=> n_gt0; rewrite /wide_ln -rms_norm_is_wide_layer_norm. Qed.

Theorem pre_rms_stream_is_wide_pre_ln_stream blocks x : (0 < n)%N ->
  final_stream wide_ln (@widen R n) blocks (each (@widen R n) x) =
  each (@widen R n) (final_stream rms id blocks x).
Proof.
move=> n_gt0; apply: converted_stream => [|eps w b y]; [exact: widenD|exact: wide_lnE].
Qed.

Theorem pre_rms_network_is_wide_pre_ln_network eps w b blocks x : (0 < n)%N ->
  network wide_ln (@widen R n) head eps w b blocks (each (@widen R n) x) =
  network rms id head eps w b blocks x.
Proof.
move=> n_gt0; apply: converted_network => [|eps' w' b' y]; [exact: widenD|exact: wide_lnE].
Qed.

(* RMSNorm of width n as LayerNorm of width 2n, on the stream (x, -x). *)
Definition double (y : row R n) : row R (n + n) := side_by_side y (- y).
Definition doubled_ln eps w b (x : row R (n + n)) : row R n :=
  affine w b (left_side (ln_hat eps x)).

Lemma doubleD : {morph double : x y / x + y}.
Proof. by move=> x y; rewrite /double opprD side_by_sideD. Qed.
Lemma doubled_lnE eps w b y : doubled_ln eps w b (double y) = rms eps w b y.
Proof. by rewrite /doubled_ln layer_norm_of_doubled_row_is_rms_norm left_side_by_side. Qed.

Theorem pre_rms_stream_is_doubled_pre_ln_stream blocks x :
  final_stream doubled_ln double blocks (each double x) =
  each double (final_stream rms id blocks x).
Proof. exact: converted_stream doubleD doubled_lnE _ _. Qed.

Theorem pre_rms_network_is_doubled_pre_ln_network eps w b blocks x :
  network doubled_ln double head eps w b blocks (each double x) =
  network rms id head eps w b blocks x.
Proof. exact: converted_network doubleD doubled_lnE _ _ _ _ _ _ _. Qed.
End FullWidth.

(* The conversions of a Pre-LN network of width n + 1 to a stream of n numbers. *)
Section NarrowStream.
Variables (R : rcfType) (tokens n : nat).
Variables (logits : Type) (head : stream R tokens n.+1 -> logits).
Implicit Types (blocks : seq (block R tokens n.+1)) (x : stream R tokens n.+1).
Implicit Types (w b : row R n.+1) (eps : R).

Local Notation ln := (@layer_norm R n.+1).

(* CRMSNorm's chart: centre, and drop the last element. *)
Definition centre_and_drop (x : row R n.+1) : row R n := compress (center x).
Definition crms eps w b (z : row R n) : row R n.+1 := affine w b (decompress (crms_hat eps z)).

Lemma centre_and_dropD : {morph centre_and_drop : x y / x + y}.
Proof. by move=> x y; rewrite /centre_and_drop centring_is_additive compressD. Qed.
Lemma crmsE eps w b y : crms eps w b (centre_and_drop y) = ln eps w b y.
Proof. by rewrite layer_norm_is_crms_norm_of_compressed. Qed.

Theorem pre_ln_stream_is_pre_crms_stream blocks x :
  final_stream crms centre_and_drop blocks (each centre_and_drop x) =
  each centre_and_drop (final_stream ln id blocks x).
Proof. exact: converted_stream centre_and_dropD crmsE _ _. Qed.

Theorem pre_ln_network_is_pre_crms_network eps w b blocks x :
  network crms centre_and_drop head eps w b blocks (each centre_and_drop x) =
  network ln id head eps w b blocks x.
Proof. exact: converted_network centre_and_dropD crmsE _ _ _ _ _ _ _. Qed.

(* The isometric chart. *)
Definition narrow_rms eps w b (y : row R n) : row R n.+1 := affine w b (widen (narrow_hat eps y)).

Lemma narrow_rmsE eps w b y : narrow_rms eps w b (narrow y) = ln eps w b y.
Proof. by rewrite /narrow_rms -layer_norm_is_narrow_norm_in_the_isometric_chart. Qed.

Theorem pre_ln_stream_is_narrow_pre_rms_stream blocks x :
  final_stream narrow_rms (@narrow R n) blocks (each (@narrow R n) x) =
  each (@narrow R n) (final_stream ln id blocks x).
Proof. exact: converted_stream (@narrow_is_additive R n) narrow_rmsE _ _. Qed.

Theorem pre_ln_network_is_narrow_pre_rms_network eps w b blocks x :
  network narrow_rms (@narrow R n) head eps w b blocks (each (@narrow R n) x) =
  network ln id head eps w b blocks x.
Proof. exact: converted_network (@narrow_is_additive R n) narrow_rmsE _ _ _ _ _ _ _. Qed.
End NarrowStream.

(* ---- Writers ----
   A linear writer's centring can be folded into its weights and bias once and for all. A factor
   per channel on the write (LayerScale, a dropout mask) must be applied before the centring. *)
Section Writers.
Variables (R : rcfType) (n m : nat).
Implicit Types (A : 'I_n -> 'I_m -> R) (s b x mask : row R n) (y : row R m).

Definition centred_columns A : 'I_n -> 'I_m -> R := fun i j => A i j - (\sum_k A k j) / n%:R.

Lemma center_apply A y : center (apply A y) = apply (centred_columns A) y.
Proof.
have total_apply : total (apply A y) = \sum_j (\sum_k A k j) * y j.
  rewrite /total (eq_bigr (fun i => \sum_j A i j * y j)) => [|i _]; last by rewrite ffunE.
  by rewrite exchange_big; apply: eq_bigr => j _; rewrite mulr_suml.
apply/ffunP => i; rewrite !ffunE /mean total_apply mulr_suml -sumrB.
by apply: eq_bigr => j _; rewrite mulrBl mulrAC.
Qed.

Theorem centred_write_is_a_write_with_centred_weights A b y :
  center (apply A y + b) = apply (centred_columns A) y + center b.
Proof. by rewrite centring_is_additive center_apply. Qed.

(* LayerScale: P diag(s) A, whose weights are the centred columns of diag(s) A. *)
Theorem layer_scale_is_folded_before_centring A s b y :
  center (mul s (apply A y + b)) =
  apply (centred_columns (fun i j => s i * A i j)) y + center (mul s b).
Proof.
rewrite -center_apply -centring_is_additive; congr center; apply/ffunP => i.
by rewrite !ffunE mulrDr mulr_sumr; congr (_ + _); apply: eq_bigr => j _; rewrite mulrA.
Qed.

(* A mask of dropout instead: what is masked is the write of the weights as they were. *)
Theorem masked_write_is_recentred A mask b x y :
  center (x + mul mask (apply A y + b)) = center x + center (mul mask (apply A y + b)).
Proof. exact: centring_is_additive. Qed.

(* Stochastic depth has one number for each token, and the writer is centred as usual. *)
Theorem scaled_write_has_centred_weights A b x y (keep : R) :
  center (x + scale keep (apply A y + b)) =
  center x + scale keep (apply (centred_columns A) y + center b).
Proof. by rewrite centring_is_additive centerZ centred_write_is_a_write_with_centred_weights. Qed.
End Writers.

(* What the other order is off by: without centring again, and with. *)
Theorem scaling_after_centring_is_off_by (R : rcfType) n (s z : row R n) :
  mul s (center z) - center (mul s z) = const (mean (mul s z)) - scale (mean z) s.
Proof.
apply/ffunP => i; rewrite !ffunE mulrBr opprB [mean z * _]mulrC addrAC addrCA subrr addr0.
by [].
Qed.

Theorem recentring_a_centred_write_is_off_by (R : rcfType) n (s z : row R n) :
  center (mul s z) - center (mul s (center z)) = scale (mean z) (center s).
Proof.
rewrite -centerN -centring_is_additive -centerZ; congr center; apply/ffunP => i; rewrite !ffunE.
by rewrite mulrBr opprB addrC subrK mulrC.
Qed.

(* The other order is another function: with the mask (1, 0), the write (1, 1), once centred, is
   lost, while the masked write, centred, is (1/2, -1/2). *)
Theorem mask_after_centring_is_refuted (R : rcfType) : exists s z : row R 2,
  mul s (center z) != center (mul s z) /\ center (mul s (center z)) != center (mul s z).
Proof.
pose s : row R 2 := [ffun i => (val i == 0%N)%:R]; exists s, (const 1).
have -> : mul s (center (const 1)) = const 0.
  by apply/ffunP => i; rewrite center_const !ffunE mulr0.
have masked : center (mul s (const 1)) != 0.
  apply/eqP => /centring_kills_exactly_the_constants [c /ffunP constant].
  have := constant ord0; have := constant ord_max; rewrite !ffunE /= !mulr1 => <- /eqP.
  by rewrite oner_eq0.
have const0 : const 0 = 0 :> row R 2 by apply/ffunP => i; rewrite !ffunE.
by rewrite center_const const0 eq_sym.
Qed.

(* No axiom: this prints "Closed under the global context". *)
Definition theorems_of_networks :=
  (@converted_stream_is_the_centred_stream,
   @pre_ln_network_is_pre_rms_network,
   @pre_ln_network_is_a_pre_rms_network_with_centred_bodies,
   @zero_mean_stream_may_exchange_norms,
   @centred_bodies_write_zero_sums,
   @pre_rms_stream_is_wide_pre_ln_stream,
   @pre_rms_network_is_wide_pre_ln_network,
   @pre_rms_stream_is_doubled_pre_ln_stream,
   @pre_rms_network_is_doubled_pre_ln_network,
   @pre_ln_stream_is_pre_crms_stream,
   @pre_ln_network_is_pre_crms_network,
   @pre_ln_stream_is_narrow_pre_rms_stream,
   @pre_ln_network_is_narrow_pre_rms_network,
   @centred_write_is_a_write_with_centred_weights,
   @layer_scale_is_folded_before_centring,
   @masked_write_is_recentred,
   @scaled_write_has_centred_weights,
   @scaling_after_centring_is_off_by,
   @recentring_a_centred_write_is_off_by,
   @mask_after_centring_is_refuted).
Print Assumptions theorems_of_networks.
