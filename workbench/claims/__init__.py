"""A claim: a question, the records that answer it, and a result that follows from them alone.

`measure` runs what a claim asks; `derive` turns its records into a verdict with an interval;
`check` derives it again from the very records that a result names; `difference` compares two
results of a claim, or says why they cannot be compared.
"""

from .check import check as check
from .check import difference as difference
from .check import named as named
from .check import read_result as read_result
from .claim import Claim as Claim
from .claim import modules_of as modules_of
from .claim import read_claim as read_claim
from .measure import measure as measure
from .result import cases_of as cases_of
from .result import derive as derive
from .result import line_of as line_of
from .result import result_path as result_path
from .result import write_result as write_result
