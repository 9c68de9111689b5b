"""Whole transformers in four forms, run and compared exactly over a finite field."""

from verify.symbolic.network.comparison import Comparison as Comparison
from verify.symbolic.network.comparison import compare as compare
from verify.symbolic.network.model import Shape as Shape
from verify.symbolic.network.mutation import Caught as Caught
from verify.symbolic.network.mutation import Mutation as Mutation
from verify.symbolic.network.mutation import mutants as mutants
