"""Random conditions on random datasets: `Dataset.filter` selects the datapoints that plain Python selects."""

import json
import math
import operator
import random

import numpy as np
import pytest

import bags
from bags.dataset.base import Select

SPEC = {
    'int': 'int(8)',
    'short': 'int(1)?',
    'size16': 'int(16)',
    'uint': 'uint(8)',
    'maybe': 'uint(8)?',
    'float': 'float(8)?',
    'single': 'float(4)',
    'half': 'float(2)?',
    'ok': 'bool',
    'flag': 'bool?',
    'label': 'int(2)',
    'tag': 'float(8)?',
    'text': 'utf8',
    'note': 'utf8?',
    'words': 'utf8[]?',
    'ints': 'int(4)[]',
    'uints': 'uint(8)[]?',
    'singles': 'float(4)[]',
    'floats': 'float(8)[]?',
    'bools': 'bool[]',
    'kinds': 'int(1)[]?',
    'meta': 'json?',
    'raw': 'bytes?',
    'state': 'array(f4,?)?',
    'lists': 'json[]?',
    'steps': 'array(f4,2)[]?',
    'grids': 'array(i8,?)[]',
}
CLASSES = ['owl', 'Barn Owl', 'cat', '7', 'a']
RATES = {'ints': 2, 'lists': 0.1, 'words': 3}
FACTS = {
    **{name: {'classes': CLASSES} for name in ('label', 'tag', 'kinds')},
    **{name: {'rate': rate} for name, rate in RATES.items()},
}
BYTES = {'int': 8, 'short': 1, 'size16': 16, 'single': 4, 'half': 2, 'ok': 1, 'ints': 4, 'floats': 8}
INTS = [0, 1, -1, 2, 3, 4, 7, 100, -128, 127]
LONG = [2**53, 2**53 + 1, -(2**53) - 1, 2**62 + 1, 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, 0.5, 0.1, 1.0, 2.0, 3.0, -1.5, math.nan, math.inf, -math.inf]
LARGE_FLOATS = [2.0**53, 2.0**63, 2.0**64, 1e300, -1e300, 2.0**53 + 2]
CHARACTERS = ['a', 'B', 'owl', ' ', 'red', 'é', 'ß', '😀', '"', '\\', 'İ', '\n', '\0', '']
LITERALS = [
    '0', '1', '-1', '+2', '3', '7', '2.5', '.5', '0.1', '-1.5', '1e0', '1_0', '-128', '200', 'true', 'False',
    '9007199254740993', '9007199254740992', '9007199254740993.0', '-9007199254740993', '9223372036854775807',
    '-9223372036854775808', '9223372036854775808', '18446744073709551615', '18446744073709551616', '- true',
    '1e300', '1e999', '-1e999', '1.8446744073709552e19', '9.223372036854775807e18', '36893488147419103232',
    '- 3',
]  # fmt: skip
SIGNS = {
    '==': operator.eq,
    '=': operator.eq,
    '!=': operator.ne,
    '<': operator.lt,
    '<=': operator.le,
    '>': operator.gt,
    '>=': operator.ge,
}
NUMBERS = ['int', 'short', 'size16', 'uint', 'maybe', 'float', 'single', 'half', 'ok', 'flag', 'label', 'tag']
NUMBER_SEQUENCES = ['ints', 'uints', 'singles', 'floats', 'bools', 'kinds']
SEQUENCES = [*NUMBER_SEQUENCES, 'words', 'lists', 'steps', 'grids']


def random_row(r):
    def optional(value):
        return None if r.random() < 0.2 else value

    def text():
        return ''.join(r.choices(CHARACTERS, k=r.choice([0, 1, 1, 2, 3])))

    def several(values):
        return r.choices(values, k=r.choice([0, 0, 1, 2, 5]))

    wide, positive = [*INTS, *LONG], [0, 1, 3, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1]
    floats = [*FLOATS, *LARGE_FLOATS]
    return {
        'int': r.choice(wide),
        'short': optional(r.choice(INTS)) if r.random() < 0.9 else -128,
        'size16': r.choice([*wide, 2**64, 2**65, -(2**90)]),
        'uint': r.choice(positive),
        'maybe': optional(r.choice(positive)),
        'float': optional(r.choice(floats)),
        'single': r.choice(FLOATS),
        'half': optional(r.choice(FLOATS)),
        'ok': r.random() < 0.5,
        'flag': optional(r.random() < 0.5),
        'label': r.choice([0, 1, 2, 3, 4, 5, -1, 300]),
        'tag': optional(r.choice([0.0, 1.0, 2.5, 3.0, -1.0, math.nan, math.inf])),
        'text': text() if r.random() < 0.95 else text() + 'x' * 4090 + text(),
        'note': optional(text()),
        'words': optional([text() for _ in range(r.choice([0, 1, 3]))]),
        'ints': several(INTS),
        'uints': optional(several(positive)),
        'singles': several(FLOATS),
        'floats': optional(several(floats)),
        'bools': several([True, False]),
        'kinds': optional(several([0, 1, 2, 3, 4, 5, -1])),
        'meta': optional(r.choice([{'a': 1}, [], [1, 2, 3], 'text', '', *([5] if r.random() < 0.1 else [])])),
        'raw': optional(r.randbytes(r.choice([0, 1, 5]))),
        'state': optional(np.array(several(FLOATS), np.float32)),
        'lists': optional(several([[], 1, None])),
        'steps': optional(several([np.array(r.choices(FLOATS, k=2), np.float32) for _ in range(3)])),
        'grids': several([np.array(several(wide), np.int64) for _ in range(3)]),
    }


def stored_bytes(row, name):
    """Returns the bytes of the records of a value."""
    value = row[name]
    if value is None:
        return None
    if name in BYTES:
        return BYTES[name] * (len(value) if name in SEQUENCES else 1)
    texts = value if name in SEQUENCES else [value]
    return sum(len(text.encode() if isinstance(text, str) else text) for text in texts)


class Conditions:
    """Random conditions: each a text, and a function of a datapoint that returns whether it passes."""

    def __init__(self, r):
        self.r = r

    def condition(self, depth=3):
        if depth and self.r.random() < 0.5:
            (one, first), (two, second) = self.condition(depth - 1), self.condition(depth - 1)
            if self.r.random() < 0.5:
                return f'({one}) and ({two})', lambda row: first(row) and second(row)
            return f'({one}) or ({two})', lambda row: first(row) or second(row)
        if self.r.random() < 0.2:
            text, test = self.condition(0)
            return f'not ({text})', lambda row: not test(row)
        return self.r.choice([
            self.numbers, self.numbers, self.texts, self.contains, self.among, self.within, self.substring,
            self.is_none, self.truth, self.search, self.classes, self.missing, self.is_nan, self.items,
        ])()  # fmt: skip

    def quoted(self):
        text = ''.join(self.r.choices(CHARACTERS, k=self.r.choice([0, 1, 1, 2])))
        escaped = text.replace('\\', '\\\\').replace('"', '\\"').replace('\n', '\\n')
        return f'"{escaped}"', text

    def literal(self):
        text = self.r.choice(LITERALS)
        if text.lower() in ('true', 'false'):
            return text, lambda _: text.lower() == 'true'
        if text.startswith('- '):
            return text, lambda _: -3 if text == '- 3' else -1
        digits = text.replace('_', '')
        number = int(digits) if digits.lstrip('+-').isdigit() else float(digits)
        return text, lambda _: number

    def function(self):
        choice = self.r.choice(['len', 'size', 'duration'])
        if choice == 'len':
            name = self.r.choice([*SEQUENCES, 'text', 'note', 'meta', 'raw', 'state'])
            return f'len({name})', lambda row: 0 if row[name] is None else len(row[name])
        if choice == 'size':
            name = self.r.choice([*BYTES, 'text', 'note', 'words', 'raw'])
            return f'SIZE({name})', lambda row: stored_bytes(row, name)
        name = self.r.choice([*RATES])
        return f'duration({name})', lambda row: None if row[name] is None else len(row[name]) / RATES[name]

    def number(self):
        if self.r.random() < 0.25:
            return self.function()
        name = self.r.choice(NUMBERS)
        if self.r.random() < 0.1:
            return f'-{name}', lambda row: None if row[name] is None else -row[name]
        return name, lambda row: row[name]

    def comparisons(self, values, signs):
        (text, left), tests = values[0], []
        for (other, right), sign in zip(values[1:], signs, strict=True):
            text += f' {sign} {other}'
            tests.append((left, SIGNS[sign], right, sign in ('==', '=', '!=')))
            left = right

        def test(row):
            for left, operation, right, takes_none in tests:
                pair = left(row), right(row)
                if not takes_none and None in pair:
                    return False
                if not operation(*pair):
                    return False
            return True

        return text, test

    def numbers(self):
        values = [self.number(), self.literal() if self.r.random() < 0.6 else self.number()]
        self.r.shuffle(values)
        if self.r.random() < 0.2:
            values = [values[0], self.number(), values[1]]
        return self.comparisons(values, self.r.choices([*SIGNS], k=len(values) - 1))

    def text(self):
        name = self.r.choice(['text', 'note'])
        return name, lambda row: row[name]

    def texts(self):
        quoted, text = self.quoted()
        values = [self.text(), (quoted, lambda _: text) if self.r.random() < 0.7 else self.text()]
        self.r.shuffle(values)
        return self.comparisons(values, [self.r.choice([*SIGNS])])

    def contains(self):
        name = self.r.choice(['text', 'note', 'words'])
        quoted, text = self.quoted()
        word, get = (quoted, lambda _: text) if self.r.random() < 0.7 else self.text()

        def test(row):
            texts = () if row[name] is None else row[name] if name == 'words' else [row[name]]
            word = get(row)
            return word is not None and any(word.lower() in text.lower() for text in texts)

        return f'{name} ~ {word}', test

    def among(self):
        if self.r.random() < 0.3:
            left, get = self.text()
            items = [(quoted, lambda _, text=text: text) for quoted, text in [self.quoted(), self.quoted()]]
            items.append(self.text())
        else:
            left, get = self.number()
            items = [self.literal() for _ in range(self.r.randint(1, 3))]
            if self.r.random() < 0.3:
                items.insert(0, self.number())
        negated = self.r.random() < 0.3

        def test(row):
            value = get(row)
            found = value is not None and any(value == other(row) for _, other in items)
            return found != negated

        return f'{left} {"not in" if negated else "in"} ({", ".join(text for text, _ in items)})', test

    def within(self):
        if self.r.random() < 0.3:
            name, (quoted, text) = 'words', self.quoted()
            left, get = (quoted, lambda _: text) if self.r.random() < 0.7 else self.text()
        else:
            name = self.r.choice(NUMBER_SEQUENCES)
            left, get = self.literal() if self.r.random() < 0.6 else self.number()

        def test(row):
            value, values = get(row), row[name]
            if value is None or values is None:
                return False
            # An array of bools raises OverflowError for an integer that is not an int64.
            return value in (values.tolist() if name == 'bools' else values)

        return f'{left} in {name}', test

    def substring(self):
        name, get_within = self.text()
        quoted, text = self.quoted()
        left, get = (quoted, lambda _: text) if self.r.random() < 0.7 else self.text()

        def test(row):
            value, within = get(row), get_within(row)
            return value is not None and within is not None and value in within

        return f'{left} in {name}', test

    def is_none(self):
        name = self.r.choice([*SPEC])
        form = self.r.choice(['is none', 'is not none', '== none', '!= None'])
        negated = 'not' in form or '!' in form
        return f'{name} {form}', lambda row: (row[name] is None) != negated

    def is_nan(self):
        text, get = self.number()
        negated = self.r.random() < 0.3
        return (
            f'{text} is {"not " if negated else ""}nan',
            lambda row: (get(row) is not None and get(row) != get(row)) != negated,
        )

    def items(self):
        quantifier, name = (
            self.r.choice(['any', 'all']),
            self.r.choice([*NUMBER_SEQUENCES, 'state', 'words', 'steps', 'grids']),
        )
        if name == 'words':
            quoted, text = self.quoted()
            sign = self.r.choice([*SIGNS])
            condition, test = f'words {sign} {quoted}', lambda item, _: SIGNS[sign](item, text)
        elif self.r.random() < 0.3:
            condition, test = f'not {name} is nan and {name}', lambda item, _: item == item and bool(item)
        else:
            other, get = self.literal() if self.r.random() < 0.6 else self.number()
            if '(' in other:
                other, get = 'float', lambda row: row['float']
            sign = self.r.choice([*SIGNS])
            takes_none = sign in ('==', '=', '!=')
            condition = f'{name} {sign} {other}'

            def test(item, row):
                value = get(row)
                return (takes_none or value is not None) and SIGNS[sign](item, value)

        def test_items(row):
            if row[name] is None:
                return False
            items = row[name].tolist() if isinstance(row[name], np.ndarray) else row[name]
            if name in ('steps', 'grids'):
                items = [number for array in row[name] for number in array.tolist()]
            return {'any': any, 'all': all}[quantifier](test(item, row) for item in items)

        return f'{quantifier}({condition})', test_items

    def truth(self):
        name = self.r.choice([*NUMBERS, 'text', 'note', *SEQUENCES])
        return (
            name,
            lambda row: (
                row[name] is not None and (len(row[name]) > 0 if name in SEQUENCES else bool(row[name]))
            ),
        )

    def search(self):
        terms = [self.quoted() for _ in range(self.r.choice([1, 1, 2]))]

        def test(row):
            texts = [row['text'], row['note'], *(row['words'] or ())]
            searched = [text.lower() for text in texts if text is not None and len(text.encode()) <= 4096]
            numbers = [row['label'], row['tag'], *(() if row['kinds'] is None else row['kinds'])]
            valid = [number for number in numbers if number is not None and 0 <= number < len(CLASSES)]
            searched += [CLASSES[int(number)].lower() for number in valid if number == int(number)]
            return all(any(term.lower() in text for text in searched) for _, term in terms)

        return ' '.join(quoted for quoted, _ in terms), test

    def classes(self):
        name, number = self.r.choice(['label', 'tag']), self.r.randrange(5)
        if self.r.random() < 0.3:
            return (
                f'"{CLASSES[number]}" in kinds',
                lambda row: row['kinds'] is not None and number in row['kinds'],
            )
        return self.comparisons(
            [(name, lambda row: row[name]), (f'"{CLASSES[number]}"', lambda _: number)],
            [self.r.choice([*SIGNS])],
        )

    def missing(self):
        """Returns a condition whose first part keeps the second from failing."""
        text, test = self.numbers()
        return (
            f'{text} and len(meta) > 1',
            lambda row: test(row) and (0 if row['meta'] is None else len(row['meta'])) > 1,
        )


def random_dataset(r, path, length):
    """Returns a dataset with random datapoints: a folder, shards, or a view."""
    rows = [random_row(r) for _ in range(length)]
    writer = (
        bags.ShardedDatasetWriter(path, SPEC, shard_length=max(1, length // 3), metadata={'fields': FACTS})
        if r.random() < 0.5
        else bags.DatasetWriter(path, SPEC, metadata={'fields': FACTS})
    )
    with writer:
        for row in rows:
            writer.append(row)
    dataset = bags.open(path)
    form = r.choice(['whole', 'selected', 'updated', 'concat', 'joined'])
    if form == 'selected':
        dataset = dataset.select(r.choices(range(length), k=length + 5) if length else [])
    elif form == 'updated' and length:
        names = [name for name in SPEC if name not in ('lists', 'meta')]
        new = random_row(r)
        dataset = dataset.update({r.randrange(length): {name: new[name] for name in r.sample(names, 8)}})
    elif form == 'concat':
        lacking = [name for name in SPEC if SPEC[name].endswith('?') and r.random() < 0.4]
        dataset = bags.concat([dataset, dataset.drop(fields=lacking) if lacking else dataset])
    elif form == 'joined':
        names = r.sample([*SPEC], 10)
        others = [name for name in SPEC if name not in names]
        dataset = bags.join([dataset.select(fields=names), dataset.select(fields=others)])
    return dataset


def check(seed, path, datasets, conditions, length):
    r = random.Random(seed)
    for number in range(datasets):
        dataset = random_dataset(r, path / f'{seed}-{number}', r.choice([0, 1, length, length]))
        rows = [dict(row) for row in dataset]
        for _ in range(conditions):
            text, test = Conditions(r).condition()
            expected, failed = [], None
            for index, row in enumerate(rows):
                try:
                    with np.errstate(all='ignore'):
                        if test(row):
                            expected.append(index)
                except TypeError:  # A number has no length.
                    failed = index
                    break
            workers = r.choice([None, 1, 4])
            if failed is None:
                if isinstance(dataset, Select):  # The indices of a view of a view are the first's.
                    expected = np.asarray(dataset.indices)[expected].tolist() if expected else []
                assert dataset.filter(text, workers=workers).indices.tolist() == expected, text
                continue
            with pytest.raises(ValueError, match='meta: len takes values with items, got 5') as caught:
                dataset.filter(text, workers=workers)
            assert f'for datapoint {failed} of' in caught.value.__notes__[0], text


@pytest.mark.parametrize('seed', range(4))
def test_random_conditions(tmp_path, seed):
    check(seed, tmp_path, datasets=3, conditions=40, length=25)


@pytest.mark.campaign
@pytest.mark.parametrize('seed', range(100, 130))
def test_many_random_conditions(tmp_path, seed):
    check(seed, tmp_path, datasets=12, conditions=85, length=40)


def test_several_blocks(tmp_path):
    check(1000, tmp_path, datasets=2, conditions=15, length=700)


def test_blocks_of_long_sequences(tmp_path):
    with bags.DatasetWriter(tmp_path / 'long', {'id': 'int', 'ids': 'int(2)[]'}) as writer:
        for index, count in enumerate([5000, 0, 4990, 1, 10]):
            writer.append({'id': index, 'ids': np.arange(index, index + count, dtype=np.int16)})
    tests = {
        '4991 in ids': lambda row: 4991 in row['ids'],
        'id in ids': lambda row: row['id'] in row['ids'],
        '4999 in ids or size(ids) == 2': lambda row: 4999 in row['ids'] or row['ids'].nbytes == 2,
        'not 7 in ids': lambda row: 7 not in row['ids'],
    }
    with bags.open(tmp_path / 'long') as dataset:
        rows, positions = list(dataset), [number % 5 for number in range(900)]
        view = dataset.select(positions)
        for text, test in tests.items():
            expected = [position for position in positions if test(rows[position])]
            assert view.filter(text, workers=1).indices.tolist() == expected, text


def test_texts_keep_their_order_and_zeros(tmp_path):
    rows = [{'text': text} for text in ('a', 'a\0', 'b', '')]
    bags.write(rows, tmp_path / 'texts', {'text': 'utf8'})
    with bags.open(tmp_path / 'texts') as dataset:
        assert dataset.filter(json.dumps('a\0').replace('\\u0000', '\0') + ' == text').indices.tolist() == [1]
        assert dataset.filter('text <= "a"').indices.tolist() == [0, 3]
