(* Gradients: the directional derivatives of the norms, and the backward formulas as their adjoints.

   derivative f L says: f t = f 0 + t L + t^2 rho(t) for all small t, with rho bounded. It implies
   that (f t - f 0)/t tends to L, which is proved first, and L is unique.  A backward formula
   dx = J^T dy is stated twice: as the adjoint, sum_i dy_i (J h)_i = sum_i dx_i h_i for every
   direction h, with J h the proved derivative; and as the gradient, sum_i dx_i h_i being the
   derivative of sum_i dy_i norm(x + t h)_i, for every h. *)
From Normproof Require Import rows norms charts.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.Theory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Derivative.
Variable R : rcfType.
Add Field scalars : (scalar_field R).
Implicit Types (f g q v : R -> R) (L a b c t : R).

Definition near_zero (P : R -> Prop) := exists2 d, 0 < d & forall t, `|t| <= d -> P t.
Definition bounded f := exists c, near_zero (fun t => `|f t| <= c).
Definition derivative f L :=
  exists2 rho, bounded rho & near_zero (fun t => f t = f 0 + t * L + t ^+ 2 * rho t).

Lemma near_and (P Q : R -> Prop) : near_zero P -> near_zero Q -> near_zero (fun t => P t /\ Q t).
Proof.
move=> [d d_gt0 nearP] [e e_gt0 nearQ]; exists (Num.min d e); first by rewrite lt_minr d_gt0.
by move=> t; rewrite le_minr => /andP[/nearP ? /nearQ].
Qed.
Lemma near_imply (P Q : R -> Prop) : (forall t, P t -> Q t) -> near_zero P -> near_zero Q.
Proof. by move=> PQ [d d_gt0 nearP]; exists d => // t /nearP/PQ. Qed.

Lemma bounded_const c : bounded (fun=> c).
Proof. by exists `|c|, 1. Qed.
Lemma bounded_id : bounded id.
Proof. by exists 1, 1. Qed.
Lemma bounded_add f g : bounded f -> bounded g -> bounded (fun t => f t + g t).
Proof.
move=> [c fc] [d gd]; exists (c + d); apply: near_imply (near_and fc gd) => t [f_le g_le].
exact: le_trans (ler_norm_add _ _) (ler_add f_le g_le).
Qed.
Lemma bounded_mul f g : bounded f -> bounded g -> bounded (fun t => f t * g t).
Proof.
move=> [c fc] [d gd]; exists (c * d); apply: near_imply (near_and fc gd) => t [f_le g_le].
by rewrite normrM ler_pmul.
Qed.

Lemma bounded_times_t_vanishes f a : bounded f -> 0 < a -> near_zero (fun t => `|t * f t| <= a).
Proof.
move=> [c fc] a_gt0; have c1_gt0 : 0 < `|c| + 1 by rewrite ltr_paddl.
have small : near_zero (fun t => `|t| <= a / (`|c| + 1)).
  by exists (a / (`|c| + 1)); rewrite ?divr_gt0.
apply: near_imply (near_and fc small) => t [f_le t_le].
rewrite normrM -[a](divfK (lt0r_neq0 c1_gt0)) ler_pmul //.
by apply: le_trans f_le _; rewrite (le_trans (ler_norm c)) // ler_addl.
Qed.

(* The textbook's definition, which asks less: the quotients come as near to L as one likes. *)
Definition limit_of_quotients f L :=
  forall a, 0 < a -> near_zero (fun t => t != 0 -> `|(f t - f 0) / t - L| <= a).

Theorem derivative_is_the_limit_of_quotients f L : derivative f L -> limit_of_quotients f L.
Proof.
move=> [rho rho_b fL] a a_gt0.
apply: near_imply (near_and fL (bounded_times_t_vanishes rho_b a_gt0)) => t [-> small] t_neq0.
have -> : (f 0 + t * L + t ^+ 2 * rho t - f 0) / t - L = t * rho t; last by [].
by by_field R; apply/eqP.
Qed.

(* The derivative is one number. *)
Theorem derivative_is_unique f L L' : derivative f L -> derivative f L' -> L = L'.
Proof.
move=> [rho rho_b fL] [rho' rho'_b fL']; apply/eqP; rewrite -subr_eq0; apply/negPn/negP => gap_neq0.
have [|d d_gt0] := @bounded_times_t_vanishes (fun t => rho' t + - 1 * rho t) (`|L - L'| / 2%:R)
  (bounded_add rho'_b (bounded_mul (bounded_const _) rho_b)).
  by rewrite divr_gt0 ?normr_gt0 ?ltr0n.
have [e e_gt0 both] := near_and fL fL'.
set t := Num.min d e => gap; have t_gt0 : 0 < t by rewrite lt_minr d_gt0.
have [|ft ft'] := both t; first by rewrite gtr0_norm // /t le_minl lexx orbT.
have t_small : `|t| <= d by rewrite gtr0_norm // /t le_minl lexx.
have := gap t t_small.
have -> : t * (rho' t + - 1 * rho t) = L - L'.
  apply: (mulfI (lt0r_neq0 t_gt0)).
  have -> : t * (t * (rho' t + -1 * rho t)) = t ^+ 2 * rho' t - t ^+ 2 * rho t by by_ring R.
  have solve (a y l p : R) : y = a + t * l + p -> p = y - a - t * l by move=> ->; by_ring R.
  by rewrite (solve _ _ _ _ ft) (solve _ _ _ _ ft'); by_ring R.
by rewrite leNgt ltr_pdivr_mulr ?ltr0n // ltr_pmulr ?normr_gt0 // ltr1n.
Qed.

Lemma derivative_eq f g L : (forall t, f t = g t) -> derivative f L -> derivative g L.
Proof. by move=> fg [rho rho_b fL]; exists rho => //; apply: near_imply fL => t; rewrite !fg. Qed.

Lemma derivative_quadratic a b c : derivative (fun t => a + t * b + t ^+ 2 * c) b.
Proof.
exists (fun=> c); first exact: bounded_const.
by exists 1 => // t _; by_ring R.
Qed.
Lemma derivative_affine a b : derivative (fun t => a + t * b) b.
Proof. by apply: derivative_eq (derivative_quadratic a b 0) => t; by_ring R. Qed.

Lemma derivative_add f g L L' :
  derivative f L -> derivative g L' -> derivative (fun t => f t + g t) (L + L').
Proof.
move=> [p p_b fL] [q q_b gL']; exists (fun t => p t + q t); first exact: bounded_add.
by apply: near_imply (near_and fL gL') => t [-> ->]; by_ring R.
Qed.
Lemma derivative_sum (I : Type) (s : seq I) (F : I -> R -> R) (L : I -> R) :
  (forall i, derivative (F i) (L i)) ->
  derivative (fun t => \sum_(i <- s) F i t) (\sum_(i <- s) L i).
Proof.
move=> dF; elim: s => [|i s IH].
  rewrite big_nil; apply: (derivative_eq (f := fun t => 0 + t * 0)) (derivative_affine 0 0) => t.
  by rewrite big_nil mulr0 addr0.
by rewrite big_cons; apply: derivative_eq (derivative_add (dF i) IH) => t; rewrite big_cons.
Qed.

Theorem derivative_of_product f g L L' :
  derivative f L -> derivative g L' -> derivative (fun t => f t * g t) (L * g 0 + f 0 * L').
Proof.
move=> [p p_b fL] [q q_b gL'].
exists (fun t => f 0 * q t + (g 0 * p t + (L * L' + t * (L * q t + L' * p t + t * (p t * q t))))).
  do 8?[apply: bounded_add|apply: bounded_mul|exact: bounded_const|exact: bounded_id|exact: p_b
       |exact: q_b].
by apply: near_imply (near_and fL gL') => t [-> ->]; by_ring R.
Qed.

(* With s = sqrt(v t), s0 = sqrt(v 0) and v t = v 0 + t b + t^2 w, the remainder of 1/s in closed
   form; it stays bounded because 1/s and 1/(s + s0) do. *)
Lemma rsqrt_expansion (s s0 b t w : R) : s <> 0 -> s0 <> 0 -> s + s0 <> 0 ->
  s * s = s0 * s0 + t * b + t ^+ 2 * w ->
  s^-1 = s0^-1 + t * (- (s0^-1) ^+ 3 * (b / 2%:R)) +
    t ^+ 2 * ((- (2%:R * s0 ^+ 2) * w + b * (b + t * w) * (1 + s0 * (s + s0)^-1)) *
              (s^-1 * ((s + s0)^-1 * (2%:R * s0 ^+ 3)^-1))).
Proof.
move=> s_neq0 s0_neq0 sum_neq0 square.
have : r_mul s s = r_add (r_add (r_mul s0 s0) (r_mul t b)) (r_mul (r_mul t t) w) by [].
move=> named; have two_neq0 : 2%:R <> 0 :> R by apply/eqP; rewrite pnatr_eq0.
by name_operations R; field [named].
Qed.

Theorem derivative_of_rsqrt v b : 0 < v 0 -> derivative v b ->
  derivative (fun t => (Num.sqrt (v t))^-1) (- (Num.sqrt (v 0))^-1 ^+ 3 * (b / 2%:R)).
Proof.
move=> v0_gt0 [w w_b v_near]; set s0 := Num.sqrt (v 0).
have s0_gt0 : 0 < s0 by rewrite sqrtr_gt0.
pose s t := Num.sqrt (v t).
have q_b : bounded (fun t => b + t * w t).
  exact: bounded_add (bounded_const b) (bounded_mul bounded_id w_b).
have v_positive : near_zero (fun t => v 0 / 2%:R <= v t).
  have half_gt0 : 0 < v 0 / 2%:R by rewrite divr_gt0 ?ltr0n.
  apply: near_imply (near_and v_near (bounded_times_t_vanishes q_b half_gt0)) => t [-> tq_le].
  have -> : v 0 + t * b + t ^+ 2 * w t = v 0 / 2%:R + (v 0 / 2%:R + t * (b + t * w t)).
    by name_operations R; field; apply/eqP; rewrite (pnatr_eq0 R 2).
  rewrite ler_addl -ler_subl_addr sub0r.
  by apply: le_trans tq_le; rewrite -normrN ler_norm.
have rstd_b : bounded (fun t => (s t)^-1).
  exists ((v 0 / 2%:R)^-1 + 1); apply: near_imply v_positive => t v_ge.
  have half_gt0 : 0 < v 0 / 2%:R by rewrite divr_gt0 ?ltr0n.
  have vt_gt0 := lt_le_trans half_gt0 v_ge.
  have r_gt0 : 0 < (s t)^-1 by rewrite invr_gt0 sqrtr_gt0.
  have r_squared : (s t)^-1 * (s t)^-1 <= (v 0 / 2%:R)^-1.
    by rewrite -expr2 exprVn (sqr_sqrtr (ltW vt_gt0)) lef_pinv.
  rewrite gtr0_norm //; case: (leP (s t)^-1 1) => [le1|/ltW ge1].
    by rewrite (le_trans le1) // ler_addr invr_ge0 ltW.
  apply: le_trans (_ : (s t)^-1 * (s t)^-1 <= _); first by rewrite ler_pmulr.
  by rewrite (le_trans r_squared) // ler_addl ler01.
have sum_b : bounded (fun t => (s t + s0)^-1).
  exists s0^-1; exists 1 => // t _.
  by rewrite ger0_norm ?invr_ge0 ?addr_ge0 ?sqrtr_ge0 // lef_pinv ?posrE ?ltr_paddl ?sqrtr_ge0 //
    ler_addr sqrtr_ge0.
exists (fun t => (- (2%:R * s0 ^+ 2) * w t + b * (b + t * w t) * (1 + s0 * (s t + s0)^-1)) *
              ((s t)^-1 * ((s t + s0)^-1 * (2%:R * s0 ^+ 3)^-1))).
  apply: bounded_mul.
    apply: bounded_add; first exact: bounded_mul (bounded_const _) w_b.
    apply: bounded_mul; first exact: bounded_mul (bounded_const _) q_b.
    exact: bounded_add (bounded_const _) (bounded_mul (bounded_const _) sum_b).
  exact: bounded_mul rstd_b (bounded_mul sum_b (bounded_const _)).
apply: near_imply (near_and v_near v_positive) => t [v_eq v_ge].
have vt_gt0 : 0 < v t by apply: lt_le_trans v_ge; rewrite divr_gt0 ?ltr0n.
apply: rsqrt_expansion; try by apply/eqP; rewrite gt_eqF // ?addr_gt0 ?sqrtr_gt0.
by rewrite -!expr2 !sqr_sqrtr ?ltW.
Qed.
End Derivative.

(* ---- The norms ----
   Every norm here is a row times 1/sqrt of a quadratic form of it. *)
Section Gradients.
Variables (R : rcfType) (n : nat).
Add Field scalars : (scalar_field R).
Implicit Types (x h w b dy g : row R n) (eps : R).

Lemma derivative_of_normalised (a k B c : R) (v : R -> R) :
  (forall t, v t = v 0 + t * (2%:R * B) + t ^+ 2 * c) -> 0 < v 0 ->
  let r := (Num.sqrt (v 0))^-1 in
  derivative (fun t => (a + t * k) / Num.sqrt (v t)) (r * k - r ^+ 3 * B * a).
Proof.
move=> v_quadratic v0_gt0 r; have two_neq0 : 2%:R <> 0 :> R by apply/eqP; rewrite pnatr_eq0.
have dv : derivative v (2%:R * B).
  by apply: derivative_eq (derivative_quadratic (v 0) (2%:R * B) c) => t.
have := derivative_of_product (derivative_affine a k) (derivative_of_rsqrt v0_gt0 dv).
rewrite -/r mul0r addr0.
suff -> : k * r + a * (- r ^+ 3 * (2%:R * B / 2%:R)) = r * k - r ^+ 3 * B * a by [].
by by_field R.
Qed.

(* RMSNorm: with r = rstd, (J h)_i = w_i (r h_i - r^3 (<x, h>/d) x_i). *)
Definition rstd eps x : R := (Num.sqrt (mean_square x + eps))^-1.
Definition rms_hat_jvp eps x h : row R n :=
  [ffun i => rstd eps x * h i - rstd eps x ^+ 3 * (dot x h / n%:R) * x i].

Lemma mean_square_line x h t :
  mean_square (x + scale t h) =
  mean_square x + t * (2%:R * (dot x h / n%:R)) + t ^+ 2 * mean_square h.
Proof.
rewrite !mean_square_dot dotDl !dotDr !dotZl !dotZr [dot h x]dotC.
by by_ring R.
Qed.

Theorem rstd_derivative eps x h : 0 < mean_square x + eps ->
  derivative (fun t => rstd eps (x + scale t h)) (- rstd eps x ^+ 3 * (dot x h / n%:R)).
Proof.
pose v t := mean_square (x + scale t h) + eps.
have v0 : v 0 = mean_square x + eps by rewrite /v mean_square_line; by_ring R.
have two_neq0 : 2%:R <> 0 :> R by apply/eqP; rewrite pnatr_eq0.
rewrite /rstd -v0 => positive; have dv : derivative v (2%:R * (dot x h / n%:R)).
  apply: derivative_eq (derivative_quadratic (v 0) (2%:R * (dot x h / n%:R)) (mean_square h)) => t.
  by rewrite v0 /v mean_square_line; by_ring R.
have := derivative_of_rsqrt positive dv; suff -> : 2%:R * (dot x h / n%:R) / 2%:R = dot x h / n%:R.
  by [].
by rewrite mulrAC divff ?mul1r //; apply/eqP.
Qed.

(* A positive radicand is all that is asked: eps > 0, or a row that is not zero. *)
Theorem rms_hat_derivative eps x h i : 0 < mean_square x + eps ->
  derivative (fun t => rms_hat eps (x + scale t h) i) (rms_hat_jvp eps x h i).
Proof.
pose v t := mean_square (x + scale t h) + eps.
have v0 : v 0 = mean_square x + eps by rewrite /v mean_square_line; by_ring R.
rewrite ffunE /rstd -v0 => positive.
have v_quadratic t : v t = v 0 + t * (2%:R * (dot x h / n%:R)) + t ^+ 2 * mean_square h.
  by rewrite v0 /v mean_square_line; by_ring R.
have := derivative_of_normalised (x i) (h i) v_quadratic positive.
by apply: derivative_eq => t; rewrite !ffunE.
Qed.

Lemma derivative_of_affine f L (a c : R) :
  derivative f L -> derivative (fun t => f t * a + c) (L * a).
Proof.
move=> [rho rho_b fL].
exists (fun t => rho t * a); first exact: bounded_mul rho_b (bounded_const a).
by apply: near_imply fL => t ->; by_ring R.
Qed.

(* What a loss sees of a row through dy, the loss's own gradient. *)
Lemma derivative_of_dot dy (F : R -> row R n) (J : row R n) :
  (forall i, derivative (fun t => F t i) (J i)) -> derivative (fun t => dot dy (F t)) (dot dy J).
Proof.
move=> dF; apply: derivative_sum => i; rewrite mulrC.
by apply: derivative_eq (derivative_of_affine (dy i) 0 (dF i)) => t; rewrite addr0 mulrC.
Qed.

Theorem rms_norm_derivative eps w b x h i : 0 < mean_square x + eps ->
  derivative (fun t => rms_norm eps w b (x + scale t h) i) (mul (rms_hat_jvp eps x h) w i).
Proof.
move=> /(rms_hat_derivative h i)/(derivative_of_affine (w i) (b i)).
by rewrite [mul _ _ _]ffunE; apply: derivative_eq => t; rewrite [RHS]ffunE.
Qed.

(* J_LN(x) = J_RMS(P x) P: LayerNorm's derivative is RMSNorm's, at the centred row, along the
   centred direction. *)
Theorem layer_norm_derivative_is_rms_norm_derivative_of_centred eps w b x h i :
  0 < variance x + eps ->
  derivative (fun t => layer_norm eps w b (x + scale t h) i)
    (mul (rms_hat_jvp eps (center x) (center h)) w i).
Proof.
rewrite variance_center => /(rms_norm_derivative w b (center h) i).
apply: derivative_eq => t.
by rewrite layer_norm_is_rms_norm_of_centred centring_is_additive centerZ.
Qed.

(* The backward pass of RMSNorm (Zhang & Sennrich 2019): with g = dy w and x_hat = x r,
   dx = r (g - x_hat mean(g x_hat)). *)
Definition rms_backward eps x g : row R n :=
  [ffun i => rstd eps x * (g i - rms_hat eps x i * mean (mul g (rms_hat eps x)))].

Lemma rms_backwardE eps x g :
  rms_backward eps x g = scale (rstd eps x) g - scale (rstd eps x ^+ 3 * (dot g x / n%:R)) x.
Proof.
have inner : total (mul g (rms_hat eps x)) = rstd eps x * dot g x.
  by rewrite total_mul rms_hat_scale dotZr.
apply/ffunP => i; rewrite !ffunE /mean inner /rstd.
by by_ring R.
Qed.
Lemma rms_jvpE eps x h :
  rms_hat_jvp eps x h = scale (rstd eps x) h - scale (rstd eps x ^+ 3 * (dot x h / n%:R)) x.
Proof. by apply/ffunP => i; rewrite !ffunE. Qed.

Lemma rms_hat_adjoint eps x g h : dot g (rms_hat_jvp eps x h) = dot (rms_backward eps x g) h.
Proof.
rewrite rms_backwardE rms_jvpE dotDr dotNr dotDl dotNl !dotZr !dotZl.
by by_ring R.
Qed.

Theorem rms_jacobian_is_symmetric eps x u h :
  dot u (rms_hat_jvp eps x h) = dot (rms_hat_jvp eps x u) h.
Proof. by rewrite rms_hat_adjoint rms_backwardE rms_jvpE [dot u x]dotC. Qed.

Theorem rms_norm_backward_is_the_adjoint eps w x dy h :
  dot dy (mul (rms_hat_jvp eps x h) w) = dot (rms_backward eps x (mul dy w)) h.
Proof.
rewrite -rms_hat_adjoint dotC dot_mul dotC; congr dot.
by apply/ffunP => i; rewrite !ffunE mulrC.
Qed.

Theorem rms_norm_backward_is_the_gradient eps w b x dy h : 0 < mean_square x + eps ->
  derivative (fun t => dot dy (rms_norm eps w b (x + scale t h)))
    (dot (rms_backward eps x (mul dy w)) h).
Proof.
move=> positive; rewrite -rms_norm_backward_is_the_adjoint.
by apply: derivative_of_dot => i; apply: rms_norm_derivative.
Qed.

(* The backward pass of LayerNorm (Ba, Kiros & Hinton 2016):
   dx = r (g - mean g - x_hat mean(g x_hat)). *)
Definition ln_rstd eps x : R := (Num.sqrt (variance x + eps))^-1.
Definition ln_backward eps x g : row R n :=
  [ffun i => ln_rstd eps x * (g i - mean g - ln_hat eps x i * mean (mul g (ln_hat eps x)))].

Lemma mean_mul_ln_hat eps x g :
  mean (mul g (ln_hat eps x)) = ln_rstd eps x * dot g (center x) / n%:R.
Proof. by rewrite /mean total_mul ln_hat_center rms_hat_scale -variance_center dotZr. Qed.

Lemma ln_backward_center eps x g : ln_backward eps x g = center (rms_backward eps (center x) g).
Proof.
rewrite rms_backwardE centring_is_additive centerN !centerZ centring_is_idempotent /rstd.
rewrite -variance_center.
apply/ffunP => i; rewrite !ffunE mean_mul_ln_hat /ln_rstd.
by by_ring R.
Qed.

Theorem layer_norm_backward_is_the_adjoint eps w x dy h :
  dot dy (mul (rms_hat_jvp eps (center x) (center h)) w) = dot (ln_backward eps x (mul dy w)) h.
Proof.
by rewrite rms_norm_backward_is_the_adjoint ln_backward_center centring_is_symmetric.
Qed.

Theorem layer_norm_backward_is_the_gradient eps w b x dy h : 0 < variance x + eps ->
  derivative (fun t => dot dy (layer_norm eps w b (x + scale t h)))
    (dot (ln_backward eps x (mul dy w)) h).
Proof.
move=> positive; rewrite -layer_norm_backward_is_the_adjoint; apply: derivative_of_dot => i.
exact: layer_norm_derivative_is_rms_norm_derivative_of_centred.
Qed.

(* So the gradient that LayerNorm sends back sums to zero; RMSNorm's need not. *)
Theorem layer_norm_gradient_sums_to_zero eps x g : total (ln_backward eps x g) = 0.
Proof. by rewrite ln_backward_center centred_row_sums_to_zero. Qed.

(* The form of CPU kernels: dx = r g + b x + c, with b = (sum(g) mean - sum(g x)) r^3/d and
   c = -b mean - sum(g) r/d. *)
Theorem folded_backward_is_backward eps x g i :
  let r := ln_rstd eps x in
  let b := (total g * mean x - dot g x) * r * r * r / n%:R in
  let c := - (b * mean x) - total g * r / n%:R in
  ln_backward eps x g i = r * g i + b * x i + c.
Proof.
move=> r b c; rewrite ffunE mean_mul_ln_hat ffunE -/(ln_rstd eps x) -/r /c /b.
rewrite centerE dotDr dotNr dot_constr /mean.
by by_ring R.
Qed.

(* And its weight gradient, with x_hat not kept. *)
Theorem folded_weight_gradient eps x dy i :
  dy i * (x i - mean x) * ln_rstd eps x = mul dy (ln_hat eps x) i.
Proof. by rewrite !ffunE mulrA. Qed.

(* The gradients of weight and bias, dy x_hat and dy, along any change (u, v) of both. *)
Theorem weight_and_bias_gradients x_hat w b dy u v :
  derivative (fun t => dot dy (affine (w + scale t u) (b + scale t v) x_hat))
    (dot (mul dy x_hat) u + dot dy v).
Proof.
have affine_dot w' b' : dot dy (affine w' b' x_hat) = dot (mul dy x_hat) w' + dot dy b'.
  have -> : affine w' b' x_hat = mul x_hat w' + b' by apply/ffunP => i; rewrite !ffunE.
  by rewrite dotDr dot_mul.
apply: derivative_eq (derivative_affine (dot dy (affine w b x_hat)) _) => t.
by rewrite !affine_dot !dotDr !dotZr; by_ring R.
Qed.
End Gradients.

(* ---- The norms of width d - 1, with n = d - 1 ---- *)
Section ChartGradients.
Variables (R : rcfType) (n : nat).
Add Field scalars : (scalar_field R).
Implicit Types (z h g : row R n) (eps : R).

Definition crms_rstd eps z : R := (Num.sqrt ((\sum_j z j ^+ 2 + total z ^+ 2) / n.+1%:R + eps))^-1.
Definition crms_hat_jvp eps z h : row R n :=
  scale (crms_rstd eps z) h -
  scale (crms_rstd eps z ^+ 3 * ((dot z h + total z * total h) / n.+1%:R)) z.

Theorem crms_norm_derivative eps z h i : 0 < (\sum_j z j ^+ 2 + total z ^+ 2) / n.+1%:R + eps ->
  derivative (fun t => crms_hat eps (z + scale t h) i) (crms_hat_jvp eps z h i).
Proof.
pose v t := (dot (z + scale t h) (z + scale t h) + total (z + scale t h) ^+ 2) / n.+1%:R + eps.
have v_quadratic t : v t = v 0 + t * (2%:R * ((dot z h + total z * total h) / n.+1%:R)) +
    t ^+ 2 * ((dot h h + total h ^+ 2) / n.+1%:R).
  rewrite /v !dotDl !dotDr !dotZl !dotZr [dot h z]dotC !totalD !totalZ.
  by by_ring R.
have v0 : v 0 = (\sum_j z j ^+ 2 + total z ^+ 2) / n.+1%:R + eps.
  have z0 : z + scale 0 h = z by apply/ffunP => j; rewrite !ffunE mul0r addr0.
  by rewrite /v z0 dot_self.
rewrite /crms_hat_jvp /crms_rstd -v0 => positive.
have := derivative_of_normalised (z i) (h i) v_quadratic positive.
by rewrite !ffunE; apply: derivative_eq => t; rewrite !ffunE /v dot_self.
Qed.

(* dz = r (g - (z + sum z) r^2 <g, z>/d): the extra sum z is the dropped coordinate's share. *)
Theorem crms_norm_backward_is_the_adjoint eps z g h :
  let r := crms_rstd eps z in
  dot g (crms_hat_jvp eps z h) =
  dot (scale r (g - scale (r * r * (dot g z / n.+1%:R)) (z + const (total z)))) h.
Proof.
move=> r; rewrite dotZl dotDr dotDl !dotNr !dotNl !dotZr !dotZl dotDl dot_constl -/r.
by by_ring R.
Qed.

Theorem crms_norm_backward_is_the_gradient eps z g h :
  0 < (\sum_j z j ^+ 2 + total z ^+ 2) / n.+1%:R + eps ->
  let r := crms_rstd eps z in
  derivative (fun t => dot g (crms_hat eps (z + scale t h)))
    (dot (scale r (g - scale (r * r * (dot g z / n.+1%:R)) (z + const (total z)))) h).
Proof.
move=> positive r; rewrite -crms_norm_backward_is_the_adjoint.
by apply: derivative_of_dot => i; apply: crms_norm_derivative.
Qed.

Definition narrow_rstd eps z : R := (Num.sqrt ((\sum_j z j ^+ 2) / n.+1%:R + eps))^-1.
Definition narrow_hat_jvp eps z h : row R n :=
  scale (narrow_rstd eps z) h - scale (narrow_rstd eps z ^+ 3 * (dot z h / n.+1%:R)) z.

Theorem narrow_rms_norm_derivative eps z h i : 0 < (\sum_j z j ^+ 2) / n.+1%:R + eps ->
  derivative (fun t => narrow_hat eps (z + scale t h) i) (narrow_hat_jvp eps z h i).
Proof.
pose v t := dot (z + scale t h) (z + scale t h) / n.+1%:R + eps.
have v_quadratic t :
    v t = v 0 + t * (2%:R * (dot z h / n.+1%:R)) + t ^+ 2 * (dot h h / n.+1%:R).
  rewrite /v !dotDl !dotDr !dotZl !dotZr [dot h z]dotC.
  by by_ring R.
have v0 : v 0 = (\sum_j z j ^+ 2) / n.+1%:R + eps.
  have z0 : z + scale 0 h = z by apply/ffunP => j; rewrite !ffunE mul0r addr0.
  by rewrite /v z0 dot_self.
rewrite /narrow_hat_jvp /narrow_rstd -v0 => positive.
have := derivative_of_normalised (z i) (h i) v_quadratic positive.
by rewrite !ffunE; apply: derivative_eq => t; rewrite !ffunE /v dot_self.
Qed.

Theorem narrow_rms_norm_backward_is_the_adjoint eps z g h :
  let r := narrow_rstd eps z in
  dot g (narrow_hat_jvp eps z h) =
  dot (scale r (g - scale (r * r * (dot g z / n.+1%:R)) z)) h.
Proof.
move=> r; rewrite dotZl dotDr dotDl !dotNr !dotNl !dotZr !dotZl -/r.
by by_ring R.
Qed.
Theorem narrow_rms_norm_backward_is_the_gradient eps z g h :
  0 < (\sum_j z j ^+ 2) / n.+1%:R + eps ->
  let r := narrow_rstd eps z in
  derivative (fun t => dot g (narrow_hat eps (z + scale t h)))
    (dot (scale r (g - scale (r * r * (dot g z / n.+1%:R)) z)) h).
Proof.
move=> positive r; rewrite -narrow_rms_norm_backward_is_the_adjoint.
by apply: derivative_of_dot => i; apply: narrow_rms_norm_derivative.
Qed.
End ChartGradients.

(* The hypotheses of the theorems above are met: for every row where eps > 0, and for eps = 0 by
   every row that is not zero (RMSNorm) or not constant (LayerNorm). *)
Theorem radicands_are_positive (R : rcfType) n (x : row R n) (eps : R) : 0 < eps ->
  0 < mean_square x + eps /\ 0 < variance x + eps.
Proof. by move=> eps_gt0; rewrite !ltr_paddl ?mean_square_ge0 ?variance_ge0. Qed.

Theorem radicands_are_positive_without_eps (R : rcfType) n (x : row R n) :
  (x != 0 -> 0 < mean_square x + 0) /\ (center x != 0 -> 0 < variance x + 0).
Proof.
suff positive (y : row R n) : y != 0 -> 0 < mean_square y + 0.
  by split; [exact: positive|rewrite variance_center; exact: positive].
move=> y_neq0; rewrite addr0 lt0r mean_square_ge0 andbT mean_square_dot.
have dot_neq0 : dot y y != 0 by apply: contra_neq y_neq0; exact: dot_self_eq0.
case: (posnP n) => [n0|n_gt0]; last by rewrite mulf_neq0 ?invr_neq0 ?width_neq0.
case/eqP: dot_neq0; rewrite /dot big1 // => i _.
by suff : (0 < 0)%N by []; rewrite -{2}n0; exact: index_gt0 i.
Qed.

(* No axiom: this prints "Closed under the global context". *)
Definition theorems_of_gradients :=
  (@derivative_is_the_limit_of_quotients,
   @derivative_is_unique,
   @derivative_of_product,
   @derivative_of_rsqrt,
   @rstd_derivative,
   @rms_hat_derivative,
   @rms_norm_derivative,
   @layer_norm_derivative_is_rms_norm_derivative_of_centred,
   @rms_jacobian_is_symmetric,
   @rms_norm_backward_is_the_adjoint,
   @rms_norm_backward_is_the_gradient,
   @layer_norm_backward_is_the_adjoint,
   @layer_norm_backward_is_the_gradient,
   @layer_norm_gradient_sums_to_zero,
   @folded_backward_is_backward,
   @folded_weight_gradient,
   @weight_and_bias_gradients,
   @crms_norm_derivative,
   @crms_norm_backward_is_the_adjoint,
   @crms_norm_backward_is_the_gradient,
   @narrow_rms_norm_derivative,
   @narrow_rms_norm_backward_is_the_adjoint,
   @narrow_rms_norm_backward_is_the_gradient,
   @radicands_are_positive,
   @radicands_are_positive_without_eps).
Print Assumptions theorems_of_gradients.
