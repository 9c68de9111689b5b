"""Which claims of which certificates the theorems of ``proofs/`` state.

That a theorem of Rocq says what a claim says was read by a person, over the claim as it was then.
Each claim therefore has the fingerprint of its two ends: a claim that has changed since is not
answered until it has been read again and its new fingerprint, which the answer gives, is written
here.
"""

from __future__ import annotations

from collections.abc import Mapping

# certificate: claim: (fingerprint, names of the theorems that state it, with blanks between).
CLAIMS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "LAYER_NORM_IS_RMS_NORM_OF_CENTRED": {
        "the variance is the mean square of the centred row": (
            "51f7c96eed65",
            "variance_in_one_pass",
        ),
        "LAYER_NORM_IS_RMS_NORM_OF_CENTRED": ("7fd4787a134f", "layer_norm_is_rms_norm_of_centred"),
    },
    "CENTRING_IS_A_PROJECTION": {
        "a centred row sums to 0, and the mean is what was taken away": (
            "401470f3ba90",
            "total_is_width_times_mean centred_row_sums_to_zero",
        ),
        "it is idempotent": ("02107ed1146e", "centring_is_idempotent"),
        "it is symmetric": ("8998fa711c0f", "centring_is_symmetric"),
        "it kills constants and keeps the rest": (
            "22d124a03e1b",
            (
                "centring_does_not_see_a_shift centring_is_idempotent "
                "centring_kills_exactly_the_constants"
            ),
        ),
        "Pythagoras": ("e32f48c37438", "pythagoras"),
    },
    "LAYER_NORM_IS_SHIFT_INVARIANT": {
        "the centred row does not see the shift": ("7a11d978518d", "centring_does_not_see_a_shift"),
        "LAYER_NORM_IS_SHIFT_INVARIANT": ("483f2a11c34d", "layer_norm_is_shift_invariant"),
    },
    "RMS_NORM_IS_NOT_SHIFT_INVARIANT": {
        "the mean square of a shifted row": ("7f111933477b", "mean_square_of_shifted_row"),
        "RMSNorm of a shifted row": ("2e50964140a8", "mean_square_of_shifted_row"),
        "RMSNorm sees a shift": ("d507d8e9fd42", "rms_norm_is_not_shift_invariant"),
    },
    "ONE_PASS_VARIANCE_IS_TWO_PASS": {
        "the variance in one pass": ("a2b2030ebf75", "variance_in_one_pass"),
        "ONE_PASS_IS_TWO_PASS": ("15ff647a0581", "one_pass_is_two_pass"),
    },
    "SHIFTED_ONE_PASS_IS_TWO_PASS": {
        "the variance in one pass over x - t": ("d31c4e00c5ea", "shifted_one_pass_is_two_pass"),
        "SHIFTED_IS_TWO_PASS": (
            "36b56eb66f49",
            "shifted_one_pass_is_two_pass layer_norm_is_shift_invariant",
        ),
    },
    "FOLDED_SHIFT_IS_TWO_PASS": {
        "FOLDED_SHIFT_IS_TWO_PASS": ("c0d36a7e918a", "folded_shift_is_two_pass"),
        "FOLDED_BACKWARD_IS_BACKWARD: dx": ("84e60a12c0fe", "folded_backward_is_backward"),
        "FOLDED_BACKWARD_IS_BACKWARD: dweight + weight dbias": (
            "20c4d7e144cb",
            "folded_weight_gradient",
        ),
    },
    "WELFORD_IS_TWO_PASS": {
        (
            "a leaf: all three statistics of one element, weighed by powers of eps "
            "to keep them apart"
        ): ("419b2012dd61", "welford_is_two_pass_in_every_order"),
        "a merge: the count": ("11d1dce30808", "chan_merge_is_union"),
        "a merge: the mean": ("50f4a5104d30", "chan_merge_is_union"),
        "a merge: the squared deviations": ("fbb378b20fee", "chan_merge_is_union"),
        "WELFORD_IS_TWO_PASS": (
            "8a88d69a4b62",
            "welford_gives_mean_and_variance some_order_reads_any_row",
        ),
    },
    "COMPRESSION_IS_LOSSLESS": {
        "the dropped element is minus the sum of the others": (
            "6efcc02c4631",
            "decompress_inverts_compress centred_row_sums_to_zero",
        ),
        "decompress what was kept: block 1": (
            "ed3f61c27594",
            "decompress_inverts_compress centred_row_sums_to_zero",
        ),
        "decompress what was kept: block 2": (
            "1a2d9c681764",
            "decompress_inverts_compress centred_row_sums_to_zero",
        ),
        "every z is kept from a zero-sum row: block 1": (
            "c0682067473e",
            (
                "decompressed_row_sums_to_zero centring_fixes_exactly_zero_sum_rows "
                "compress_inverts_decompress"
            ),
        ),
        "every z is kept from a zero-sum row: block 2": (
            "d61faedd285e",
            (
                "decompressed_row_sums_to_zero centring_fixes_exactly_zero_sum_rows "
                "compress_inverts_decompress"
            ),
        ),
    },
    "COMPRESSION_CONDITION_NUMBER": {
        "the adjoint of D": ("2ac4e363432f", "adjoint_of_decompress"),
        "D^T D": ("5a627ca7b6aa", "decompressed_inner_product"),
        "the squared length of Dz": ("106e50fb40cd", "decompressed_inner_product"),
        "no row is shortened": ("24935b3506f5", "decompress_stretches_at_least_by_one"),
        "no row is stretched more than sqrt(d) times": (
            "d81b9d5ff4e8",
            "decompress_stretches_at_most_by_sqrt_d",
        ),
        "zero-sum rows keep their length, constant ones are stretched sqrt(d) times": (
            "0238c2a94393",
            (
                "zero_sum_rows_are_not_stretched largest_stretch_is_attained "
                "smallest_stretch_is_attained"
            ),
        ),
    },
    "CRMS_NORM_IS_RMS_NORM_IN_ITS_CHART": {
        "the mean square of the decompressed row": ("5a4799b0ba63", "decompressed_inner_product"),
        "CRMSNorm is the beginning of RMSNorm": (
            "ac1cc08d8c99",
            "crms_norm_is_rms_norm_in_a_chart",
        ),
        "before the affine part, the dropped element is decompressed like any other": (
            "51020952b06d",
            "crms_norm_is_rms_norm_in_a_chart",
        ),
        "CRMSNorm of what is kept of Px is the beginning of LayerNorm": (
            "d21952665494",
            "layer_norm_is_crms_norm_of_compressed",
        ),
    },
    "THE_HOUSEHOLDER_CHART_IS_AN_ISOMETRY": {
        "Q^T is the transpose of Q": ("e0ba636c46c5", "narrow_is_transpose_of_widen"),
        "Q keeps scalar products": ("848e026313f8", "widen_is_an_isometry"),
        "Q^T Q = I": ("abdbd481a3f4", "narrow_inverts_widen widened_row_sums_to_zero"),
        "Q Q^T = P: block 1": ("f099d89fbad3", "widen_inverts_narrow"),
        "Q Q^T = P: block 2": ("1dbedd2bf43b", "widen_inverts_narrow"),
    },
    "NARROW_RMS_NORM_IS_SCALED_RMS_NORM": {
        "the radicand": ("9378ce2c839a", "narrow_radicand"),
        "NARROW_RMS_NORM_IS_SCALED_RMS_NORM": (
            "6f65ca160423",
            "narrow_rms_norm_is_scaled_rms_norm",
        ),
    },
    "NARROW_RMS_NORM_IS_LAYER_NORM": {
        "the variance in the chart": ("20b93938b21c", "variance_in_the_isometric_chart"),
        "by the narrow norm, with the same eps: block 1": (
            "a802c963fb4a",
            "layer_norm_is_narrow_norm_in_the_isometric_chart",
        ),
        "by the narrow norm, with the same eps: block 2": (
            "520ad75ed969",
            "layer_norm_is_narrow_norm_in_the_isometric_chart",
        ),
        "by a stock RMSNorm, with eps d/(d-1): block 1": (
            "7a92ddd90e10",
            "layer_norm_is_narrow_rms_norm",
        ),
        "by a stock RMSNorm, with eps d/(d-1): block 2": (
            "4a8934971acd",
            "layer_norm_is_narrow_rms_norm",
        ),
    },
    "RMS_NORM_IS_LAYER_NORM_OF_WIDTH_PLUS_ONE": {
        "LayerNorm does not centre Qx, which sums to 0: block 1": (
            "41781137d78e",
            (
                "widened_row_sums_to_zero layer_norm_is_rms_norm_on_zero_mean_rows "
                "layer_norm_is_narrow_norm_in_the_isometric_chart narrow_inverts_widen"
            ),
        ),
        "LayerNorm does not centre Qx, which sums to 0: block 2": (
            "cf02d5fd0be1",
            (
                "widened_row_sums_to_zero layer_norm_is_rms_norm_on_zero_mean_rows "
                "layer_norm_is_narrow_norm_in_the_isometric_chart narrow_inverts_widen"
            ),
        ),
        "RMSNorm as LayerNorm of one element more": ("a59343cfc482", "rms_norm_is_wide_layer_norm"),
    },
    "THE_DOUBLING_TRICK": {
        "the variance of the pair is the mean square of the row": (
            "f96bac34c1ba",
            "variance_of_doubled_row",
        ),
        "LayerNorm of the pair: block 1": (
            "c3b1f6f1cfb5",
            "layer_norm_of_doubled_row_is_rms_norm rms_norm_is_odd",
        ),
        "LayerNorm of the pair: block 2": (
            "56efc680c3ce",
            "layer_norm_of_doubled_row_is_rms_norm rms_norm_is_odd",
        ),
    },
    "ROTATIONS_COMMUTE_WITH_RMS_NORM": {
        "H is its own inverse": ("56ad6db7c2b0", "reflection_is_its_own_inverse"),
        "H keeps the mean square": (
            "f0209e663845",
            "reflection_is_orthogonal rotations_keep_inner_products",
        ),
        "RMSNorm of a reflected row": (
            "42202de5e6b6",
            "reflection_is_orthogonal rms_norm_commutes_with_rotations",
        ),
    },
    "RMS_NORM_IS_ZERO_HOMOGENEOUS": {
        "eps is measured in squares of x": ("43267d6b4de4", "rms_norm_of_scaled_row"),
        "with the same eps, the smaller row is the more damped": (
            "5b209c2d9f2e",
            "rms_norm_of_scaled_row",
        ),
        "without eps, a scale passes and a sign stays": (
            "6a46b16da637",
            "rms_norm_is_homogeneous_of_degree_zero rms_norm_is_odd",
        ),
    },
    "LAYER_NORM_IS_AFFINE_INVARIANT": {
        "the variance": ("6c6c1357935d", "variance_of_scaled_and_shifted_row"),
        "LayerNorm of c x + t": ("12217504e073", "layer_norm_is_affine_invariant"),
        "a negative scale turns the row over": (
            "d80bd952513d",
            "layer_norm_is_affine_invariant layer_norm_is_odd",
        ),
    },
    "DEFERRED_SCALE": {
        "a linear reader of RMSNorm": ("56ef067a0b7e", "rms_scale_is_deferred_past_the_reader"),
        "a linear reader of LayerNorm": (
            "c5a9bea32854",
            "layer_norm_scale_is_deferred_past_the_reader",
        ),
        "for LayerNorm the mean goes into the folded matrix as well": (
            "3df094e27916",
            "centring_moves_into_the_reader",
        ),
    },
    "NORMALISED_ROWS_ARE_BOUNDED": {
        "the squared length is d less what eps takes": (
            "e2fc3d3aece9",
            "normalised_row_has_bounded_energy",
        ),
        "an element of RMSNorm": ("cfab08b89afc", "normalised_element_is_at_most_sqrt_d"),
        "an element of LayerNorm": (
            "033432be3c5a",
            "normalised_element_of_layer_norm_is_at_most_sqrt_of_d_minus_one",
        ),
        "both bounds are attained by a row with one element, without eps": (
            "593b033e5122",
            (
                "rms_norm_bound_is_attained layer_norm_bound_is_attained rms_norm_is_odd "
                "layer_norm_is_odd"
            ),
        ),
    },
    "THE_SAME_WIDTH_NEEDS_A_FREE_DIRECTION": {
        "Hx sums to 0 exactly where x is orthogonal to H 1": (
            "1be3976dcd4f",
            "reflection_is_orthogonal rotated_row_sums_to_its_part_along_v",
        ),
        "H 1 has squared length d": (
            "ff3b59b7e075",
            "reflection_is_orthogonal rotations_keep_inner_products",
        ),
        "H P y stands for every row orthogonal to H 1: a projection on them is H P H": (
            "7925b0cd0621",
            "reflection_is_orthogonal rotated_centring_projects_along_v",
        ),
        "if: H x is a zero-sum row already": (
            "e9c12504eb17",
            "reflection_is_its_own_inverse centring_is_idempotent",
        ),
        "if: and has the length of x": (
            "acaf8d5f10d2",
            "rotated_layer_norm_is_rms_norm_exactly_on_orthogonal_rows",
        ),
        "only if: H RMSNorm(x) sums to <H 1, x> / rms, a row of LayerNorm to 0": (
            "97ef1663b8df",
            (
                "rotated_layer_norm_is_rms_norm_exactly_on_orthogonal_rows "
                "rotated_row_sums_to_its_part_along_v layer_norm_outputs_lie_in_a_hyperplane"
            ),
        ),
    },
    "THE_REFLECTION_BETWEEN_TWO_ROWS": {
        "there": ("f99b89d70a6b", "reflection_between_two_rows"),
        "and back": ("2938ce4755ac", "reflection_between_two_rows"),
    },
    "A_LINEAR_READER_OF_LAYER_NORM_LOSES_A_COLUMN": {
        "the sum of a row of LayerNorm does not depend on the row": (
            "7013eb4fc090",
            "layer_norm_outputs_lie_in_a_hyperplane",
        ),
        "the last column goes": (
            "018f689ec457",
            "affine_is_folded_into_the_reader reader_of_zero_sum_rows_needs_no_last_column",
        ),
        "or the mean of the columns": (
            "a1c7ff04f841",
            "centring_moves_into_the_reader layer_norm_outputs_lie_in_a_hyperplane",
        ),
    },
    "RMS_NORM_REACHES_EVERY_DIRECTION": {
        "the row 0": ("6a3b7b2460c9", "rms_norm_of_zero_row"),
        "a unit row times t": ("2b752c9dc73f", "rms_norm_of_a_direction"),
        "the radius grows from 0 to sqrt(d)": ("1df13aa3365e", "normalised_row_has_bounded_energy"),
        "t at one place, after n and before m zeros: block 1": (
            "9614e2da91c7",
            "rms_norm_of_a_direction",
        ),
        "t at one place, after n and before m zeros: block 2": (
            "37ebce87a912",
            "rms_norm_of_a_direction",
        ),
        "t at one place, after n and before m zeros: block 3": (
            "d46f8a99bef9",
            "rms_norm_of_a_direction",
        ),
    },
    "VARIANCE_DIVISOR_IS_FORCED": {
        "the gap of the inverse squares is 0 if and only if k = d": (
            "e21f9513d94d",
            "gap_of_another_divisor",
        ),
        "the unbiased variance: block 1": (
            "28554614be13",
            "sample_variance_norm_is_scaled_layer_norm",
        ),
        "the unbiased variance: block 2": (
            "3a88df878a1c",
            "sample_variance_norm_is_scaled_layer_norm",
        ),
        "the unbiased variance is another function": (
            "a31da664dd26",
            "sample_variance_is_refuted sample_variance_changes_every_row",
        ),
    },
    "PRE_LN_IS_PRE_RMS_NORM": {
        "base": (
            "1701c0c6a8a1",
            "centring_is_additive centred_write_is_a_write_with_centred_weights",
        ),
        "step": (
            "7a65aae501dc",
            "converted_stream_is_the_centred_stream centred_write_is_a_write_with_centred_weights",
        ),
        "read-out": ("b35782ddaf00", "pre_ln_network_is_pre_rms_network"),
    },
    "PRE_RMS_NORM_IS_PRE_CRMS_NORM": {
        "base": ("d765d30777e7", "centred_row_sums_to_zero decompress_inverts_compress"),
        "step": (
            "0c75cb506c92",
            (
                "pre_ln_stream_is_pre_crms_stream crms_norm_is_rms_norm_in_a_chart "
                "reader_of_zero_sum_rows_needs_no_last_column"
            ),
        ),
        "step, the feature dropped": (
            "404fc4e44869",
            (
                "pre_ln_stream_is_pre_crms_stream crms_norm_is_rms_norm_in_a_chart "
                "reader_of_zero_sum_rows_needs_no_last_column"
            ),
        ),
        "read-out": (
            "a111752ae9f4",
            (
                "pre_ln_network_is_pre_crms_network crms_norm_is_rms_norm_in_a_chart "
                "reader_of_zero_sum_rows_needs_no_last_column"
            ),
        ),
    },
    "PRE_LN_IS_NARROW_PRE_RMS_NORM": {
        "base": ("e4a1e164769d", "narrow_is_additive writer_in_the_isometric_chart"),
        "step": (
            "45707c3e7f6b",
            (
                "pre_ln_stream_is_narrow_pre_rms_stream writer_in_the_isometric_chart "
                "reader_in_the_isometric_chart"
            ),
        ),
        "read-out": (
            "20ab9eaaa994",
            (
                "pre_ln_network_is_narrow_pre_rms_network "
                "layer_norm_is_narrow_norm_in_the_isometric_chart reader_in_the_isometric_chart"
            ),
        ),
    },
    "HIDDEN_STATES_DIFFER_BY_A_MULTIPLE_OF_ONES": {
        "after a block": (
            "040d66ea0bce",
            "converted_stream_is_the_centred_stream centred_write_is_a_write_with_centred_weights",
        ),
        "no consumer behind LayerNorm sees a shift": (
            "cac0f2b93490",
            "layer_norm_is_shift_invariant",
        ),
        "no sublayer does": ("ae0709420a3f", "layer_norm_is_shift_invariant"),
        "RMSNorm in its place would": ("5788f2097d82", "rms_norm_is_not_shift_invariant"),
    },
    "PRE_RMS_NORM_IS_PRE_LN_FOR_ANY_MEANS": {
        "base": ("a260c0bdc794", "centring_does_not_see_a_shift"),
        "step": (
            "742d3ff0f939",
            (
                "centring_does_not_see_a_shift converted_stream_is_the_centred_stream "
                "centred_write_is_a_write_with_centred_weights"
            ),
        ),
        "read-out": (
            "3ca131e8a475",
            (
                "layer_norm_is_shift_invariant reader_may_add_a_multiple_of_ones "
                "layer_norm_is_rms_norm_of_centred"
            ),
        ),
    },
    "AFFINE_FOLDS_INTO_THE_READER": {
        "the reader takes gain and bias": ("8b080d20afe2", "affine_is_folded_into_the_reader"),
        "the bias that a reader without one needs": (
            "3de70bf20ab5",
            "affine_is_folded_into_the_reader",
        ),
        "LayerNorm becomes RMSNorm with gain and bias in place": (
            "58a0205d8c4f",
            "layer_norm_is_rms_norm_of_centred",
        ),
        "without the new bias": ("b1855f7d6519", "reader_needs_the_new_bias"),
    },
    "READER_ON_ZERO_SUM_ROWS": {
        "subtract the last column": (
            "2cb55af96621",
            "reader_of_zero_sum_rows_needs_no_last_column",
        ),
        "any multiple of 1^T may be added to a reader": (
            "a6bdacd8678f",
            "reader_may_add_a_multiple_of_ones",
        ),
        "a reader behind the norm": (
            "96b78d830cd2",
            "crms_norm_is_rms_norm_in_a_chart reader_of_zero_sum_rows_needs_no_last_column",
        ),
    },
    "CENTRED_WRITER": {
        "lemma 3.1": ("e2ff4dea75bd", "centred_write_is_a_write_with_centred_weights"),
        "the centred writer writes the centred output": (
            "1c92cf89b991",
            "centred_write_is_a_write_with_centred_weights",
        ),
        "which sums to 0": (
            "65f6a1b469fe",
            "centred_write_is_a_write_with_centred_weights centred_row_sums_to_zero",
        ),
        "a mean over the inputs does not centre the output": (
            "4669526fad67",
            "mean_over_inputs_does_not_centre",
        ),
    },
    "TIED_HEAD": {
        "what the tied head loses": ("81df0dd2981a", "tied_head_shift"),
        "a constant gain keeps the head tied, with a bias for each token": (
            "9602611a2379",
            (
                "tied_head_shift tied_head_shift_is_a_bias_exactly_for_constant_weight "
                "layer_norm_outputs_lie_in_a_hyperplane"
            ),
        ),
        "no other gain does": (
            "0604cc2d4a6c",
            "tied_head_shift gap_of_the_rows_weight_and_minus_weight",
        ),
        "a gain that no bias repairs": (
            "531d17a7224d",
            "tied_head_shift no_bias_repairs_another_weight",
        ),
    },
    "LAYER_SCALE_BEFORE_CENTRING": {
        "scale first, then centre": ("aa763f62316d", "layer_scale_is_folded_before_centring"),
        "the other order is off by": (
            "a62cd30309b1",
            "scaling_after_centring_is_off_by centred_write_is_a_write_with_centred_weights",
        ),
        "centre first, then scale": ("9f0a7654f22d", "mask_after_centring_is_refuted"),
    },
    "DROPOUT_BEFORE_CENTRING": {
        "recentre what the mask leaves": ("29f472af8aad", "masked_write_is_recentred"),
        "with a centred writer the result is off by": (
            "e90fc5537e6c",
            "recentring_a_centred_write_is_off_by centred_write_is_a_write_with_centred_weights",
        ),
        "stochastic depth": ("cb79ef66895f", "scaled_write_has_centred_weights"),
        "a centred writer under a mask": ("995ec4226c9a", "mask_after_centring_is_refuted"),
    },
    "JACOBIAN_OF_RMS_NORM": {
        "the reciprocal root": ("e2d05820ddde", "rstd_derivative"),
        "the normalised row": ("1a8a8ce8c7c9", "rms_hat_derivative"),
        "with weight and bias": ("91690bdabf5d", "rms_norm_derivative"),
        "it is symmetric": ("620299c38325", "rms_jacobian_is_symmetric"),
    },
    "RMS_NORM_BACKWARD_IS_THE_ADJOINT": {
        "dx": (
            "8b363e4f0d77",
            "rms_norm_backward_is_the_gradient rms_norm_backward_is_the_adjoint",
        ),
    },
    "LAYER_NORM_BACKWARD_IS_THE_ADJOINT": {
        "dx": (
            "55403771e037",
            "layer_norm_backward_is_the_gradient layer_norm_backward_is_the_adjoint",
        ),
        "dx sums to 0": ("bbdcde6bebed", "layer_norm_gradient_sums_to_zero"),
    },
    "FOLDED_BACKWARD_IS_BACKWARD": {
        "dx": ("ec1eb1ab67d8", "folded_backward_is_backward"),
        "dweight": ("ae810e7f2a8b", "folded_weight_gradient"),
        "dbias": ("f12c3cb0e6cb", "weight_and_bias_gradients"),
        "it is the adjoint": (
            "7771bd26811d",
            "folded_backward_is_backward layer_norm_backward_is_the_gradient",
        ),
    },
    "SHORT_NORMS_BACKWARD_IS_THE_ADJOINT": {
        "CRMSNorm": (
            "faefd0389b87",
            "crms_norm_backward_is_the_gradient crms_norm_backward_is_the_adjoint",
        ),
        "the narrow norm": (
            "f973e4953234",
            "narrow_rms_norm_backward_is_the_gradient narrow_rms_norm_backward_is_the_adjoint",
        ),
    },
}
