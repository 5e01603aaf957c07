"""Libraries that store datapoints of several fields, each used as its documentation recommends.

Every peer writes datapoints of `data.rows` and reads them back by row, by batch of some fields, and by
scanning one numeric field. Where a library offers several ways, the one that was fastest here is used.
"""

from benchmarks.peers.arrow import HuggingFace, Lance
from benchmarks.peers.fields import Bags, Granular, Mosaic
from benchmarks.peers.one_record import ArrayRecord, OneRecord
from benchmarks.peers.protocol import Indices, Peer, Reader, is_installed

__all__ = ['PEERS', 'VARIANTS', 'Bags', 'Indices', 'Peer', 'Reader', 'is_installed']

PEERS: dict[str, Peer] = {
    'bags': Bags(),
    'bagz, one record': OneRecord('bagz'),
    'sackli, one record': OneRecord('sackli'),
    'array_record, one record': ArrayRecord(),
    'granular': Granular(),
    'mosaicml streaming': Mosaic(),
    'lance': Lance(),
    'hf datasets': HuggingFace(),
}
# With more memory or code of the caller; these read what the peer before the comma wrote, and have no floors.
VARIANTS: dict[str, Peer] = {
    'granular, small fields in memory': Granular(cache_keys=('id', 'text')),
    'hf datasets, arrow by hand': HuggingFace(arrow=True),
}
