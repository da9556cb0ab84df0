"""Bulk work: one tool called for every row of a table, with one recorded outcome for each row.

`McpManager.map` makes a `BulkRun`. `tables` reads and writes files, `template` makes arguments of a row,
`journal` keeps the outcomes so that a killed run can go on.
"""

from dragoman.bulk.outcomes import BulkPlan, BulkProgress, BulkReport, RowOutcome
from dragoman.bulk.run import BulkRun

__all__ = ["BulkPlan", "BulkProgress", "BulkReport", "BulkRun", "RowOutcome"]
