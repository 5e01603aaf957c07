"""Tables with columns of paths: the files become fields, linked or copied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from bags.dataset.format.spec import NAME, is_reserved, parse_type
from bags.errors import SourceError, SpecError
from bags.interop.file_extensions import split_name, type_of_all
from bags.interop.files import is_stored_as_is
from bags.interop.source import DamagedEntries, Source
from bags.interop.sources.manifests.listed_files import ListedFiles
from bags.interop.sources.manifests.manifest_options import ManifestOptions
from bags.interop.sources.tables.arrow import ArrowSource, TableRow
from bags.validation import no_field


class ListedColumn(NamedTuple):
    """A column of a table whose values are paths."""

    column: str
    """The field of the paths."""
    field: str
    """The field of the files."""


class ListedTable(Source[TableRow]):
    """The rows of tables, with the files that columns name as further fields.

    Args:
        table: The tables.
        options: The columns, the root and the permitted paths.
        storage_options: As in `bags.open`, for URLs.
        types: The types of fields of files. By default, the extensions of all paths tell the type.

    Raises:
        SourceError: There is no such column, or a field of a file has the name of another field.
    """

    def __init__(
        self,
        table: ArrowSource,
        options: ManifestOptions,
        storage_options: Mapping[str, Any] | None,
        types: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(table.format, {}, table.count)
        self.table = table
        self.files = {path: ListedFiles(path, options, storage_options) for path in table.paths}
        """The files of each table, by its path."""
        self.metadata, self.notes, self.damaged = table.metadata, table.notes, table.damaged
        self.undecided, self.encoders = table.undecided, table.encoders
        self.from_text = {*table.from_text, *options.files.values()}  # A later run keeps the types.
        self.facts = {'file': dict(options.files)}
        self.types = dict(table.spec)
        """The types of the columns, before changes."""
        self._listed: list[ListedColumn] = []
        for name, field in options.files.items():
            column = table.field_of(name)
            if column is None:
                raise SourceError(table.paths[0], f'file: {no_field(name, table.columns)}')
            if column not in table.spec:
                raise SourceError(table.paths[0], f'column {name!r}: expected paths of files, got no values')
            if not NAME.fullmatch(field) or is_reserved(field):
                raise SpecError(field, 'a name of letters, digits and _.-', field)
            if field in table.spec and field != column:
                detail = f'file: expected another name for the files of column {name!r}, got {field!r}'
                raise SourceError(table.paths[0], f'{detail}, which is a column')
            self._listed.append(ListedColumn(column, field))
        found = self._extensions({each.column for each in self._listed} if types is None else ())
        self.spec = dict(table.spec)
        for column, field in self._listed:
            text = types[field] if types is not None else type_of_all(found[column] or {''})
            self.spec[field] = text + '?' * table.spec[column].endswith('?')
            if text == 'bytes':
                self.notes.append(f'field {field!r}: files are stored as bytes; spec= sets another type')

    def _extensions(self, columns: set[str] | tuple[()]) -> dict[str, set[str]]:
        """Returns the extensions of the paths in some columns."""
        found: dict[str, set[str]] = {column: set() for column in columns}
        if columns:
            self.table.spec = {column: self.types[column] for column in found}
            for entry in self.table.entries():
                values = {} if isinstance(entry, DamagedEntries) else entry.values
                for column, value in values.items():
                    if isinstance(value, str):
                        name = value.partition('?')[0] if '://' in value else value
                        found[column].add(split_name(name)[1])
            self.table.spec = dict(self.types)
        return found

    def read_columns(self) -> set[str]:
        """Returns the fields of the table that are read in any case."""
        return {each.column for each in self._listed if each.field in self.spec}

    def entries(self, start: int = 0) -> Iterator[TableRow | DamagedEntries]:
        files = {each.field for each in self._listed}
        spec = {field: text for field, text in self.spec.items() if field not in files}
        needed = {field: spec.get(field, self.types[field]) for field in sorted(self.read_columns())}
        self.table.spec = {**spec, **needed}
        return self.table.entries(start)

    def load(self, entry: TableRow) -> Mapping[str, Any]:
        values = self.table.load(entry)
        datapoint = {field: values[field] for field in self.spec if field in values}
        for column, field in self._listed:
            if field in self.spec:
                try:
                    datapoint[field] = self.load_file(entry, column, field)
                except SourceError as exc:
                    detail = f'field {field!r}: {exc.name}: {exc.detail}'
                    raise SourceError(self.table.locate(entry), detail) from exc
                except (ValueError, EOFError) as exc:
                    raise SourceError(self.table.locate(entry), f'field {field!r}: {exc}') from exc
        return datapoint

    def load_file(self, entry: TableRow, column: str, field: str) -> Any:
        """Returns the value for the file of a row.

        Raises:
            SourceError, ValueError: The file cannot be read, or is not of its type.
        """
        text, field_type = entry.values[column], parse_type(self.spec[field])
        if text is None and field_type.optional:
            return None
        files = self.files[entry.path]
        path = files.locate(text)
        if field in self.linked:
            return files.link(path, field_type.format, self.opener)
        return files.read(path, field_type.format)

    def linkable(self) -> dict[str, float | str]:
        fields = {each.field for each in self._listed if each.field in self.spec}
        return self.measured({field for field in fields if is_stored_as_is(parse_type(self.spec[field]))})

    def name(self, entry: TableRow) -> str:
        return self.table.name(entry)


def list_files_of(
    table: Source, options: ManifestOptions, storage_options: Mapping[str, Any] | None
) -> ListedTable:
    """Returns a table with the files that its columns name.

    Args:
        table: A source of the formats in `FORMATS_OF_TABLES`.
        options, storage_options: As in `ListedTable`.

    Raises:
        SourceError: As in `ListedTable`.
    """
    assert isinstance(table, ArrowSource)
    return ListedTable(table, options, storage_options)
