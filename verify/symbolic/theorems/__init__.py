"""All theorems, registered on import in the order in which they build on each other."""

from importlib import import_module

ORDER = (
    "centring",
    "charts",
    "rotations",
    "expressivity",
    "faults",
    "networks",
    "architectures",
    "folding",
    "limits",
    "jacobians",
    "contraction",
    "elementwise",
    "gradients",
    "parameter_gradients",
    "double_backward",
    "gradient_faults",
    "training",
    "optimisers",
)

for _name in ORDER:
    import_module(f"verify.symbolic.theorems.{_name}")
