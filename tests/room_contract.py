"""The contract type `only` of import-linter: a room imports what its row names, and nothing else.

import-linter's own `forbidden` needs a list of what is not allowed, and a package that nobody
thought of is then let through. Here the row lists what is allowed; the rest follows. Since every
room has such a row, direct imports are enough: chains are covered by induction.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from importlinter import Contract, ContractCheck, fields, output

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from grimp import ImportGraph


def inside(module: str, rooms: Iterable[str]) -> bool:
    """Whether the module is one of the rooms, or lies in one of them.

    >>> inside("verify.numeric.exact", ["verify.numeric"])
    True
    >>> inside("verify.numerics", ["verify.numeric"])
    False
    """
    return any(module == room or module.startswith(f"{room}.") for room in rooms)


class OnlyContract(Contract):
    """Modules of `room` import each other, the standard library and what `may_import` names.

    Modules of `leave_out`, rooms within the room, have a row of their own: they are not checked by
    this one, and the room imports them only where `may_import` names them.
    """

    type_name = "only"

    room = fields.StringField()
    may_import = fields.ListField(subfield=fields.StringField())
    leave_out = fields.ListField(subfield=fields.StringField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Compare each direct import with the row."""
        if self.room not in graph.modules:
            raise ValueError(f"the contract {self.name!r} names {self.room}, which does not exist")
        strays = sorted(self._strays(graph))
        return ContractCheck(kept=not strays, metadata={"strays": strays})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print every import that the row does not name, with its line."""
        for importer, line, imported in check.metadata["strays"]:
            output.print_error(f"{importer} (line {line}) imports {imported}", bold=False)
        output.new_line()

    def _strays(self, graph: ImportGraph) -> Iterator[tuple[str, int, str]]:
        others = self.leave_out or ()
        allowed = {self.room, *self.may_import, *sys.stdlib_module_names}
        for importer in graph.modules:
            if not inside(importer, [self.room]) or inside(importer, others):
                continue
            for imported in graph.find_modules_directly_imported_by(importer):
                left_out = inside(imported, others) and not inside(imported, self.may_import)
                if left_out or not inside(imported, allowed):
                    details = graph.get_import_details(importer=importer, imported=imported)
                    yield importer, details[0]["line_number"], imported
