(* Rows of n real numbers: sums, inner products, the mean, and centring (subtracting the mean).

   Everything here and in the files that build on it holds for every width n, and over every real
   closed field R, of which the real numbers are one. No axiom is used: a row is a finite function,
   so two rows with equal elements are equal, and no extensionality need be assumed.

   Division and the square root are total in this library (1/0 = 0, and the root of a negative
   number is 0). A hypothesis such as 0 < n or 0 < mean_square x + eps is written where a theorem
   needs it; a theorem without one also holds where the formula means nothing in practice. *)
From Coq Require Export Ring Field.
From mathcomp Require Export ssreflect ssrbool ssrfun eqtype ssrnat seq choice fintype.
From mathcomp Require Export finfun bigop order ssralg ssrnum.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* ---- Coq's ring and field tactics, over a real closed field ----
   The tactics recognise an operation by its name alone, while the library reaches the addition of
   R through many equal routes. So the operations get one name each before the tactics look. *)
Section Operations.
Variable R : rcfType.
Definition r_add (a b : R) : R := a + b.
Definition r_mul (a b : R) : R := a * b.
Definition r_opp (a : R) : R := - a.
Definition r_inv (a : R) : R := a^-1.
Definition r_nat (n : nat) : R := n%:R.
Definition r_at (n : nat) (x : {ffun 'I_n -> R}) (i : 'I_n) : R := x i.
Definition r_zero : R := 0.
Definition r_one : R := 1.

Lemma scalar_field :
  field_theory r_zero r_one r_add r_mul (fun a b => r_add a (r_opp b)) r_opp
    (fun a b => r_mul a (r_inv b)) r_inv (@eq R).
Proof.
split=> // [||a /eqP]; [|exact/eqP/oner_neq0|exact: mulVf].
split; rewrite /r_add /r_mul /r_opp => *; by
  [rewrite add0r|rewrite addrC|rewrite addrA|rewrite mul1r|rewrite mulrC
  |rewrite mulrA|rewrite mulrDl|rewrite subrr|].
Qed.
End Operations.

Ltac name_operations R :=
  repeat match goal with
  | |- context [@GRing.exp ?V ?a 2] => change (@GRing.exp V a 2) with (r_mul a a)
  | |- context [@GRing.exp ?V ?a 3] => change (@GRing.exp V a 3) with (r_mul a (r_mul a a))
  | |- context [@GRing.natmul ?V ?a 2] => change (@GRing.natmul V a 2) with (r_add a a)
  | |- context [@GRing.natmul ?V (GRing.one ?W) ?n] =>
      change (@GRing.natmul V (GRing.one W) n) with (r_nat R n)
  | |- context [@fun_of_fin ?A ?B ?C ?x ?i] => change (@fun_of_fin A B C x i) with (r_at x i)
  | |- context [@GRing.add ?V ?a ?b] => change (@GRing.add V a b) with (r_add a b)
  | |- context [@GRing.mul ?V ?a ?b] => change (@GRing.mul V a b) with (r_mul a b)
  | |- context [@GRing.opp ?V ?a] => change (@GRing.opp V a) with (r_opp a)
  | |- context [@GRing.inv ?V ?a] => change (@GRing.inv V a) with (r_inv a)
  | |- context [@GRing.zero ?V] => change (@GRing.zero V) with (r_zero R)
  | |- context [@GRing.one ?V] => change (@GRing.one V) with (r_one R)
  end;
  match goal with |- @eq _ ?a ?b => change (@eq (Num.RealClosedField.sort R) a b) end.
Ltac by_ring R := name_operations R; ring.
Ltac by_field R :=
  name_operations R; field; rewrite /r_add /r_mul /r_opp /r_inv /r_nat /r_at /r_zero /r_one.

Lemma natr_succ (R : rcfType) n : n.+1%:R = n%:R + 1 :> R.
Proof. exact: mulrSr. Qed.

Notation row R n := {ffun 'I_n -> R}.

Section Rows.
Variables (R : rcfType) (n : nat).
Add Field scalars : (scalar_field R).
Implicit Types (x y u v : row R n) (c : R).

Definition scale c x : row R n := [ffun i => c * x i].
Definition const c : row R n := [ffun=> c].
Definition mul x y : row R n := [ffun i => x i * y i].
Definition total x : R := \sum_i x i.
Definition dot x y : R := \sum_i x i * y i.
Definition mean x : R := total x / n%:R.
Definition center x : row R n := [ffun i => x i - mean x].
Definition mean_square x : R := (\sum_i x i ^+ 2) / n%:R.

Lemma width_neq0 : (0 < n)%N -> n%:R != 0 :> R.
Proof. by rewrite pnatr_eq0 -lt0n. Qed.

Lemma index_gt0 (i : 'I_n) : (0 < n)%N.
Proof. exact: leq_ltn_trans (ltn_ord i). Qed.

(* Sums and inner products are linear. *)
Lemma totalD x y : total (x + y) = total x + total y.
Proof. by rewrite /total -big_split; apply: eq_bigr => i _; rewrite ffunE. Qed.
Lemma totalZ c x : total (scale c x) = c * total x.
Proof. by rewrite /total mulr_sumr; apply: eq_bigr => i _; rewrite ffunE. Qed.
Lemma totalN x : total (- x) = - total x.
Proof. by rewrite /total -sumrN; apply: eq_bigr => i _; rewrite ffunE. Qed.
Lemma total_const c : total (const c) = n%:R * c.
Proof.
rewrite /total (eq_bigr (fun=> c)) => [|i _]; last by rewrite ffunE.
by rewrite sumr_const card_ord mulr_natl.
Qed.
Lemma dotC x y : dot x y = dot y x.
Proof. by apply: eq_bigr => i _; rewrite mulrC. Qed.
Lemma dotDl x y u : dot (x + y) u = dot x u + dot y u.
Proof. by rewrite /dot -big_split; apply: eq_bigr => i _; rewrite ffunE mulrDl. Qed.
Lemma dotZl c x u : dot (scale c x) u = c * dot x u.
Proof. by rewrite /dot mulr_sumr; apply: eq_bigr => i _; rewrite ffunE mulrA. Qed.
Lemma dotNl x u : dot (- x) u = - dot x u.
Proof. by rewrite /dot -sumrN; apply: eq_bigr => i _; rewrite ffunE mulNr. Qed.
Lemma dotDr x y u : dot u (x + y) = dot u x + dot u y.
Proof. by rewrite !(dotC u) dotDl. Qed.
Lemma dotZr c x u : dot u (scale c x) = c * dot u x.
Proof. by rewrite !(dotC u) dotZl. Qed.
Lemma dotNr x u : dot u (- x) = - dot u x.
Proof. by rewrite !(dotC u) dotNl. Qed.
Lemma dot_constl c x : dot (const c) x = c * total x.
Proof. by rewrite /dot /total mulr_sumr; apply: eq_bigr => i _; rewrite ffunE. Qed.
Lemma dot_constr c x : dot x (const c) = c * total x.
Proof. by rewrite dotC dot_constl. Qed.
Lemma total_mul x y : total (mul x y) = dot x y.
Proof. by apply: eq_bigr => i _; rewrite ffunE. Qed.
Lemma dot_mul x y u : dot (mul x y) u = dot x (mul y u).
Proof. by apply: eq_bigr => i _; rewrite !ffunE mulrA. Qed.
Lemma dot_self_ge0 x : 0 <= dot x x.
Proof. by apply: sumr_ge0 => i _; rewrite -expr2 sqr_ge0. Qed.
Lemma dot_self_eq0 x : dot x x = 0 -> x = 0.
Proof.
move=> /eqP; rewrite psumr_eq0 => [/allP z|i _]; last by rewrite -expr2 sqr_ge0.
apply/ffunP => i; rewrite ffunE; apply/eqP.
by have := z i; rewrite mem_index_enum mulf_eq0 orbb; apply.
Qed.
Lemma dot_self x : dot x x = \sum_i x i ^+ 2.
Proof. by apply: eq_bigr => i _; rewrite expr2. Qed.
Lemma mean_square_dot x : mean_square x = dot x x / n%:R.
Proof. by rewrite dot_self. Qed.
Lemma mean_square_ge0 x : 0 <= mean_square x.
Proof. by rewrite mean_square_dot divr_ge0 ?dot_self_ge0 ?ler0n. Qed.

(* Scaling, written out where the ring structure of rows does not give it. *)
Lemma scaleD c x y : scale c (x + y) = scale c x + scale c y.
Proof. by apply/ffunP => i; rewrite !ffunE mulrDr. Qed.
Lemma scaleA a b x : scale a (scale b x) = scale (a * b) x.
Proof. by apply/ffunP => i; rewrite !ffunE mulrA. Qed.
Lemma scale1 x : scale 1 x = x.
Proof. by apply/ffunP => i; rewrite !ffunE mul1r. Qed.

(* For n = 0 both sides are 0: hence no hypothesis 0 < n in what follows from it. *)
Theorem total_is_width_times_mean x : total x = n%:R * mean x.
Proof.
rewrite /mean; case: (posnP n) => [n0|/width_neq0 n_neq0]; last by rewrite mulrCA divff ?mulr1.
have no_index (i : 'I_n) : false by rewrite -(ltnn 0) -{2}n0 (index_gt0 i).
by rewrite /total big1 ?n0 ?mul0r // => i; have := no_index i.
Qed.
Lemma dot_self_eq_width x : dot x x = n%:R * mean_square x.
Proof. by rewrite -total_mul total_is_width_times_mean /mean total_mul /mean_square dot_self. Qed.
Lemma meanD x y : mean (x + y) = mean x + mean y.
Proof. by rewrite /mean totalD mulrDl. Qed.
Lemma meanZ c x : mean (scale c x) = c * mean x.
Proof. by rewrite /mean totalZ mulrA. Qed.
Lemma mean_const c : (0 < n)%N -> mean (const c) = c.
Proof. by move=> /width_neq0 n_neq0; rewrite /mean total_const mulrC mulKf. Qed.

Lemma centerE x : center x = x - const (mean x).
Proof. by apply/ffunP => i; rewrite !ffunE. Qed.
Theorem centring_is_additive x y : center (x + y) = center x + center y.
Proof. by apply/ffunP => i; rewrite !ffunE meanD; by_ring R. Qed.
Lemma centerZ c x : center (scale c x) = scale c (center x).
Proof. by apply/ffunP => i; rewrite !ffunE meanZ; by_ring R. Qed.

(* A centred row sums to zero: it lies in the hyperplane orthogonal to (1, ..., 1). *)
Theorem centred_row_sums_to_zero x : total (center x) = 0.
Proof. by rewrite centerE totalD totalN total_const total_is_width_times_mean subrr. Qed.

Lemma mean_center x : mean (center x) = 0.
Proof. by rewrite /mean centred_row_sums_to_zero mul0r. Qed.

Lemma centerN x : center (- x) = - center x.
Proof. by apply/ffunP => i; rewrite !ffunE /mean totalN; by_ring R. Qed.

Lemma center_zero_sum x : total x = 0 -> center x = x.
Proof. by move=> x0; apply/ffunP => i; rewrite !ffunE /mean x0 mul0r subr0. Qed.

(* Centring is the orthogonal projection P = I - (1/n) 1 1^T: idempotent, symmetric, and zero
   exactly on the constant rows. *)
Theorem centring_is_idempotent x : center (center x) = center x.
Proof. exact/center_zero_sum/centred_row_sums_to_zero. Qed.

Theorem centring_is_symmetric u x : dot u (center x) = dot (center u) x.
Proof.
rewrite !centerE dotDr dotDl dotNl dotNr dot_constl dot_constr !total_is_width_times_mean.
by by_ring R.
Qed.

Theorem centring_kills_exactly_the_constants x : center x = 0 <-> exists c, x = const c.
Proof.
split=> [Px0|[c ->]]; last first.
  by apply/ffunP => i; rewrite !ffunE mean_const ?subrr ?(index_gt0 i).
exists (mean x); apply/ffunP => i.
by have /ffunP/(_ i) := Px0; rewrite !ffunE => /eqP; rewrite subr_eq0 => /eqP.
Qed.

Theorem centring_fixes_exactly_zero_sum_rows x : center x = x <-> total x = 0.
Proof. by split=> [<-|/center_zero_sum //]; exact: centred_row_sums_to_zero. Qed.

(* |x|^2 = |P x|^2 + n mean^2. *)
Theorem pythagoras x : dot x x = dot (center x) (center x) + n%:R * mean x ^+ 2.
Proof.
rewrite centring_is_symmetric centring_is_idempotent centerE dotDl dotNl dot_constl.
by rewrite total_is_width_times_mean; by_ring R.
Qed.

Lemma center_const c : center (const c) = 0.
Proof. by apply/centring_kills_exactly_the_constants; exists c. Qed.
Theorem centring_does_not_see_a_shift c x : center (x + const c) = center x.
Proof. by rewrite centring_is_additive (center_const c) addr0. Qed.
Lemma dot_center x y : dot (center x) (center y) = dot (center x) y.
Proof. by rewrite centring_is_symmetric centring_is_idempotent. Qed.
End Rows.

Arguments const {R n} c.

(* ---- Matrices, as functions of their two indices ---- *)
Section Matrices.
Variables (R : rcfType) (m n : nat).
Implicit Types (A : 'I_m -> 'I_n -> R) (x y : row R n) (c : R).

Definition apply A x : row R m := [ffun i => \sum_j A i j * x j].

Lemma applyD A x y : apply A (x + y) = apply A x + apply A y.
Proof.
apply/ffunP => i; rewrite !ffunE -big_split.
by apply: eq_bigr => j _; rewrite ffunE mulrDr.
Qed.
Lemma applyZ A c x : apply A (scale c x) = scale c (apply A x).
Proof.
by apply/ffunP => i; rewrite !ffunE mulr_sumr; apply: eq_bigr => j _; rewrite ffunE mulrCA.
Qed.
End Matrices.

Definition transpose (R : rcfType) m n (A : 'I_m -> 'I_n -> R) : 'I_n -> 'I_m -> R :=
  fun j i => A i j.

Lemma apply_transpose (R : rcfType) m n (A : 'I_m -> 'I_n -> R) (x : row R n) (u : row R m) :
  dot u (apply A x) = dot (apply (transpose A) u) x.
Proof.
rewrite /dot (eq_bigr (fun i => \sum_j u i * (A i j * x j))) => [|i _]; last first.
  by rewrite ffunE mulr_sumr.
rewrite exchange_big; apply: eq_bigr => j _; rewrite ffunE mulr_suml.
by apply: eq_bigr => i _; rewrite mulrCA mulrA.
Qed.

(* No axiom: this prints "Closed under the global context". *)
Definition theorems_of_rows :=
  (@total_is_width_times_mean,
   @centring_is_additive,
   @centred_row_sums_to_zero,
   @centring_is_idempotent,
   @centring_is_symmetric,
   @centring_kills_exactly_the_constants,
   @centring_fixes_exactly_zero_sum_rows,
   @pythagoras,
   @centring_does_not_see_a_shift).
Print Assumptions theorems_of_rows.
