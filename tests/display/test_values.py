"""Values as text and as JSON."""

import bags
from bags.display.values import open_to_show, show_value


def test_parts_of_linked_files(tmp_path):
    path = tmp_path / 'session.mp4'
    path.write_bytes(b'never opened')
    spec = {'clip': 'video?', 'sound': 'audio'}
    with bags.DatasetWriter(tmp_path / 'data', spec, links=['clip', 'sound']) as writer:
        sound = bags.Link(path, frames=(0, 44_100))
        writer.append({'clip': bags.Link(path, frames=(10, 50)), 'sound': sound})
        writer.append({'clip': None, 'sound': sound})
    with open_to_show(tmp_path / 'data') as dataset:
        shown = show_value(dataset, 0, 'clip')
        assert shown.text == f'40 frames, 10 to 50 of {path}'
        assert shown.json == {'frames': 40, 'first': 10, 'stop': 50, 'path': str(path)}
        assert show_value(dataset, 1, 'clip').text == 'None'
        assert show_value(dataset, 1, 'sound').text == f'44,100 samples, 0 to 44,100 of {path}'
