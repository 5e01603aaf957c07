"""What people are shown of a dataset by `print`, IPython and notebooks; `repr` stays on one line."""

import bags


class Printer:
    def __init__(self):
        self.shown = ''

    def text(self, part):
        self.shown += part


def test_a_dataset_prints_as_a_table_of_its_fields(tmp_path, kit):
    spec = {'id': 'int(8)', 'words': 'utf8[]?'}
    rows = [{'id': index, 'words': ['a']} for index in range(5)]
    kit.fill(tmp_path / 'x', rows, spec, shard_length=2)
    with bags.open(tmp_path / 'x') as dataset:
        table = 'ShardedDatasetReader of 5 datapoints in 3 shards:\n  id     int(8)\n  words  utf8[]?'
        assert str(dataset) == table
        assert str(dataset[1:2]).splitlines()[0] == 'Select of 1 datapoint in 3 shards:'
        assert repr(dataset) == repr(bags.open(tmp_path / 'x'))
        assert '\n' not in repr(dataset)
        printer = Printer()
        dataset._repr_pretty_(printer, False)
        assert printer.shown == table
        assert '<code>utf8[]?</code>' in dataset._repr_html_()
    assert str(dataset) == table
