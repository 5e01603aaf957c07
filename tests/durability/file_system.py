"""A model of a file system, and of what a power cut can leave of it.

`FileSystem` replays operations (`recorder`), and `snapshot` draws what may be on disk if the power fails
after the first few of them. The rules are those of POSIX, limited to what ext4, XFS and btrfs can do:

- `fsync` and `fdatasync` of a file, once they have returned, promise its bytes and its size; of a folder, its
  names. They cover what had returned when they were called, and not the name of a synced file.
- Bytes: of each sector (512 bytes, or 4,096) any version since the last sync, independently of all others:
  pages are written back in any order. The size is any that the file had since then: bytes without a version
  are zeros (a hole), and bytes behind the size are gone (a tear).
- Names: changes of one folder reach the disk in their order, as in a journal, without regard to bytes: a
  rename may survive the bytes of the renamed file. Of each folder a prefix of the changes survives, either of
  one common order (the journal of ext4 and XFS), or of each folder by itself (their replay of fsync). A
  rename between two folders is one change.
"""

import dataclasses
import os

__all__ = ['FileSystem', 'Snapshot', 'read_tree', 'write_tree']

PAGE = 4096
SECTOR = 512


class Folder:
    """A folder."""

    def __init__(self):
        self.syncs = [(0, 0)]
        """Syncs: the number of operations when it was called, and when it had returned."""


class File(Folder):
    """A file, with its history."""

    def __init__(self):
        super().__init__()
        self.data = bytearray()
        self.changes = []
        """Number of the operation, offset, bytes; None for bytes: a new size."""

    def write(self, number, offset, data):
        offset = len(self.data) if offset < 0 else offset
        self.changes.append((number, offset, data))
        apply(self.data, offset, data)

    def resize(self, number, size):
        self.changes.append((number, size, None))
        apply(self.data, size, None)

    def floor(self, stop):
        """Returns how many operations the last sync covers among the first `stop`."""
        return max(start for start, end in self.syncs if end <= stop)


Folder.floor = File.floor


def apply(data, offset, new):
    if new is None:
        del data[offset:]
        data.extend(bytes(offset - len(data)))
    else:
        data.extend(bytes(max(0, offset - len(data))))
        data[offset : offset + len(new)] = new


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """What is on disk after a power cut."""

    stop: int
    """Number of operations that had returned."""
    how: str
    files: dict
    """Bytes by path; None for a folder."""

    @property
    def key(self):
        return tuple(sorted((path, data) for path, data in self.files.items()))


class FileSystem:
    """The folder `root` after operations; it is new. Operations elsewhere are left out.

    Args:
        root, operations: The folder, and the record.
        begins: The mark at which all that is there counts as synced; None: nothing does.

    Attributes:
        marks: Number of operations before each mark, by its text, in order.
        count: Number of operations.
    """

    def __init__(self, root, operations, begins=None):
        self._root = root
        self._top = Folder()
        self._names = {self._top: {}}
        """Entries by folder: the state that programs see."""
        self._changes = []
        """Of names: number of the operation, and the entries that it sets: (folder, name, file or None)."""
        self._nodes = [self._top]
        self.marks = {}
        self.count = 0
        for operation in operations:
            if operation.call == 'mark':
                self.marks[operation.path] = self.count
                if operation.path == begins:
                    for node in self._nodes:
                        node.syncs.append((self.count, self.count))
            elif operation.call == 'sync all' or f'{operation.path}/'.startswith(f'{root}/'):
                getattr(self, '_' + operation.call.replace(' ', '_'))(operation)
            self.count += 1

    def contents(self):
        """Returns what programs see: bytes by path; None for a folder."""
        return dict(self._walk(self._names, lambda file, folder: bytes(file.data)))

    # Operations.

    def _find(self, path):
        """Returns a folder and a name in it."""
        parts = os.path.relpath(path, self._root).split(os.sep)
        folder = self._top
        for part in parts[:-1]:
            folder = self._names[folder][part]
        return folder, parts[-1]

    def _get(self, path):
        if path == self._root:
            return self._top
        folder, name = self._find(path)
        return self._names[folder][name]

    def _set(self, *entries):
        self._changes.append((self.count, entries))
        for folder, name, node in entries:
            if node is None:
                del self._names[folder][name]
            else:
                self._names[folder][name] = node

    def _new(self, node):
        self._nodes.append(node)
        return node

    def _nothing(self, operation):
        pass

    def _create(self, operation):
        folder, name = self._find(operation.path)
        if name not in self._names[folder]:
            self._set((folder, name, self._new(File())))

    def _mkdir(self, operation):
        if operation.path != self._root:
            node = self._new(Folder())
            self._names[node] = {}
            self._set((*self._find(operation.path), node))

    def _unlink(self, operation):
        self._set((*self._find(operation.path), None))

    _rmdir = _unlink

    def _rename(self, operation):
        old, new = self._find(operation.path), self._find(operation.other)
        if old != new:
            self._set((*old, None), (*new, self._get(operation.path)))

    def _exchange(self, operation):
        old, new = self._find(operation.path), self._find(operation.other)
        self._set((*old, self._get(operation.other)), (*new, self._get(operation.path)))

    def _write(self, operation):
        self._get(operation.path).write(self.count, operation.offset, operation.data)

    def _copy(self, operation):
        data = self._get(operation.other).data[operation.begin : operation.begin + operation.count]
        assert len(data) == operation.count
        self._get(operation.path).write(self.count, operation.offset, bytes(data))

    def _resize(self, operation):
        self._get(operation.path).resize(self.count, operation.offset)

    def _sync(self, operation):
        self._get(operation.path).syncs.append((operation.start, self.count + 1))

    def _sync_all(self, operation):
        for node in self._nodes:
            node.syncs.append((operation.start, self.count + 1))

    # After a power cut.

    def snapshot(self, stop, chance, names='random', data='random'):
        """Returns what is on disk if the power fails after the first `stop` operations.

        Args:
            stop: Number of operations.
            chance: `random.Random`.
            names: What is left of names that are not synced: 'none', 'all', or 'random'.
            data: The same of bytes; 'holes': the sizes, without the bytes; 'folders': all, none or random
                ones of each folder, as one shard may be written back before another.
        """
        tree = self._surviving_names(stop, chance, names)
        how = dict.fromkeys(tree, data)
        if data == 'folders':
            how = {folder: chance.choice(['none', 'all', 'random']) for folder in tree}
        files = dict(self._walk(tree, lambda file, folder: surviving_bytes(file, stop, chance, how[folder])))
        return Snapshot(stop, f'names: {names}, data: {data}', files)

    def _walk(self, names, read, folder=None, prefix=''):
        folder = folder or self._top
        for name, node in names[folder].items():
            if isinstance(node, File):
                yield prefix + name, read(node, folder)
            else:
                yield prefix + name, None
                yield from self._walk(names, read, node, f'{prefix}{name}/')

    def _surviving_names(self, stop, chance, how):
        floors = {folder: folder.floor(stop) for folder in self._names}
        least = max(floors.values())
        if how == 'all':
            limits = dict.fromkeys(floors, stop)
        elif how == 'none':
            limits = floors
        elif chance.random() < 0.5:
            limits = dict.fromkeys(floors, chance.randint(least, stop))
        else:
            limits = {folder: chance.choice([floor, stop, chance.randint(floor, stop)])
                      for folder, floor in floors.items()}  # fmt: skip
        tree = {folder: {} for folder in self._names}
        # A change of two folders that one of them has synced is there in both, with those before it.
        for number, entries in reversed(self._changes):
            folders = {folder for folder, _, _ in entries}
            if number < stop and any(number < floors[folder] for folder in folders):
                for folder in folders:
                    floors[folder] = max(floors[folder], number + 1)
        limits = {folder: max(limit, floors[folder]) for folder, limit in limits.items()}
        for number, entries in self._changes:
            folders = {folder for folder, _, _ in entries}
            if any(number >= limits[folder] for folder in folders):
                for folder in folders:  # Later changes of these folders are lost too.
                    limits[folder] = min(limits[folder], number)
                continue
            for folder, name, node in entries:
                if node is None:
                    tree[folder].pop(name, None)
                else:
                    tree[folder][name] = node
        return tree


def surviving_bytes(file, stop, chance, how):
    floor = file.floor(stop)
    data = bytearray()
    for number, offset, new in file.changes:
        if number < floor:
            apply(data, offset, new)
    changes = [(offset, new) for number, offset, new in file.changes if floor <= number < stop]
    if how == 'random':
        how = chance.choice(['none', 'all', 'holes', 'prefix', 'prefix', 'mixed', 'mixed'])
    if how == 'none' or not changes:
        return bytes(data)
    if how == 'prefix':
        changes = changes[: chance.randint(1, len(changes))]
        offset, new = changes[-1]
        if new:  # Torn.
            changes[-1] = offset, new[: chance.choice([len(new), len(new) // 2, chance.randint(0, len(new))])]
    if how in ('prefix', 'all'):
        for offset, new in changes:
            apply(data, offset, new)
        return bytes(data)
    return mixed(data, changes, chance, how == 'holes')


def mixed(data, changes, chance, only_size):
    """Returns any version of each sector, and a size that the file had; or the last size and old bytes."""
    unit = chance.choice([PAGE, SECTOR])
    versions = {}
    old, sizes = bytes(data), [len(data)]
    for offset, new in changes:
        before = len(data)
        apply(data, offset, new)
        sizes.append(len(data))
        start, end = (
            (min(before, offset), max(before, offset)) if new is None else (offset, offset + len(new))
        )
        for sector in range(start // unit, -(-end // unit)):
            found = versions.setdefault(sector, [old[sector * unit : (sector + 1) * unit]])
            found.append(bytes(data[sector * unit : (sector + 1) * unit]))
    size = sizes[-1] if only_size else chance.choice([sizes[-1], sizes[-1], chance.choice(sizes)])
    result = bytearray(old)
    for sector, found in versions.items():
        chosen = found[0] if only_size else chance.choice([found[0], found[-1], chance.choice(found)])
        apply(result, sector * unit, chosen.ljust(unit, b'\0'))
    apply(result, size, None)
    return bytes(result)


def write_tree(files, folder):
    """Writes files, bytes by path, to a new folder."""
    os.makedirs(folder)
    for path, data in files.items():  # Folders come before what is in them.
        full = os.path.join(folder, path)
        if data is None:
            os.mkdir(full)
        else:
            with open(full, 'wb') as file:
                file.write(data)


def read_tree(root):
    """Returns the files in a folder: bytes by path; None for a folder."""
    found = {}
    for folder, folders, files in os.walk(root):
        found |= {os.path.relpath(os.path.join(folder, name), root): None for name in folders}
        for name in files:
            with open(os.path.join(folder, name), 'rb') as file:
                found[os.path.relpath(file.name, root)] = file.read()
    return found
