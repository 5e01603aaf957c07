import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bags
from bags.dataset.format.spec import check_names, dump_spec, load_spec, parse_spec, parse_type
from bags.errors import SpecError

WORDS = st.from_regex(r'[A-Za-z0-9_.+-]+', fullmatch=True)
ARGS = st.lists(st.from_regex(r'[A-Za-z0-9_.+\-\[]+', fullmatch=True).map(lambda s: s.replace('[', '')))
NAMES = st.text(min_size=1).filter(
    lambda n: n not in ('.', '..', 'refs') and not set(n) & set('/\\\0') and n.isprintable()
)


@given(WORDS, st.lists(st.from_regex(r'[A-Za-z0-9_.+-]+', fullmatch=True)), st.booleans(), st.booleans())
def test_types_are_parsed(format, args, sequence, optional):
    text = format + (f'({",".join(args)})' if args else '') + '[]' * sequence + '?' * optional
    kind = parse_type(text)
    assert kind == (text, format, tuple(args), sequence, optional)


@pytest.mark.parametrize(
    ('text', 'args'),
    [('array(float32,2,3)', ('float32', '2', '3')), ('int( 8 )', ('8',)), ('x(a, b)', ('a', 'b'))],
)
def test_arguments(text, args):
    assert parse_type(text).args == args


BAD_TYPES = [
    '', ' ', '()', '[]', '?', 'x()', 'x(', 'x)', 'x(a', 'x(a))', 'x((a))', 'x(,)', 'x(a,)', 'x?[]', 'x[]?[]',
    'x[][]', 'x??', 'x [] ', 'x y', 'x\n', 'x[', 'x/y', '../x', 'x\0', 'ü', None, 3, b'utf8', ['utf8'], {},
]  # fmt: skip


@pytest.mark.parametrize('text', BAD_TYPES, ids=repr)
def test_invalid_types(text):
    with pytest.raises(SpecError) as caught:
        parse_spec({'name': text})
    assert caught.value.field == 'name'
    assert caught.value.got == text
    assert "'name'" in str(caught.value)


@given(st.text())
def test_any_text_is_a_type_or_refused(text):
    try:
        kind = parse_type(text)
    except ValueError:
        return
    assert kind.text == text


@given(st.dictionaries(NAMES, WORDS))
def test_a_spec_is_read_as_it_was_written(spec):
    found = load_spec(dump_spec(parse_spec(spec)), 'spec.json')
    assert {name: kind.text for name, kind in found.items()} == spec
    assert list(found) == sorted(spec)


@pytest.mark.parametrize(
    'name', ['', '.', '..', '../x', '/etc/passwd', 'a/b', 'a\\b', '\\\\host\\x', 'a\0', 'refs'], ids=repr
)
def test_no_name_becomes_a_path(name):
    for read in (parse_spec, lambda spec: load_spec(json.dumps(spec).encode(), 'here/spec.json')):
        with pytest.raises(SpecError) as caught:
            read({'ok': 'utf8', name: 'utf8'})
        assert caught.value.field == name
    assert 'here/spec.json' in str(caught.value)


@pytest.mark.parametrize('name', [3, None, b'x', ('a',)], ids=repr)
def test_names_are_text(name):
    with pytest.raises(SpecError):
        parse_spec({name: 'utf8'})


@pytest.mark.parametrize('spec', [None, 3, 'id', [('id', 'int')], {'id'}], ids=repr)
def test_a_spec_is_a_mapping(spec):
    with pytest.raises(SpecError, match='mapping'):
        parse_spec(spec)


GOOD = [
    'a',
    '_',
    'A1',
    'a.b',
    'a-b',
    'a_b',
    '_9',
    'refs2',
    'limits',
    'limitsx',
    'com',
    'com10',
    'null',
    'auxiliary',
    'a' * 200,
]
BAD = [
    'a.',
    'a..',
    '-a',
    '.a',
    '9a',
    'a b',
    'ä',
    'limits.a',
    'Limits.a',
    'Refs',
    'REFS',
    'con',
    'NUL',
    'Com1',
]
BAD += ['lpt9', 'aux.txt', 'nul.a.b', 'a\n', 'a:b', 'a*', 'prn', 'a' * 201]


@pytest.mark.parametrize('name', GOOD)
def test_names_to_write(name):
    check_names(parse_spec({name: 'utf8'}))


@pytest.mark.parametrize('name', BAD, ids=repr)
def test_names_that_can_be_read_but_not_written(name):
    spec = parse_spec({'ok': 'utf8', name: 'utf8'})
    with pytest.raises(SpecError) as caught:
        check_names(spec)
    assert caught.value.field == name


def test_names_that_differ_only_in_case():
    with pytest.raises(SpecError, match="'Name'"):
        check_names(parse_spec({'name': 'utf8', 'Name': 'utf8'}))
    with pytest.raises(SpecError, match='at least one'):
        check_names(parse_spec({}))


@pytest.mark.parametrize(
    'data',
    [
        b'',
        b'{',
        b'null',
        b'[]',
        b'3',
        b'"id"',
        b'{"a": 1}',
        b'{"a": null}',
        b'{"a": {"b": "c"}}',
        b'{"a": "utf8", "a": "int"}',
        b'{"a": "utf8", "a": "utf8"}',
        b'\xff\xfe',
        b'{"a": "\xff"}',
        b'{"a": NaN}',
        b'[' * 100_000,
        b'{"a":' * 100_000,
        b'{"a": "utf8"} {}',
        b'1' * 10_000,
    ],
    ids=lambda data: repr(data[:20]),
)
def test_invalid_specs(data):
    with pytest.raises(SpecError, match=r'some/spec\.json'):
        load_spec(data, 'some/spec.json')


@given(st.binary())
def test_any_bytes_are_a_spec_or_refused(data):
    try:
        load_spec(data, 'x')
    except SpecError:
        pass


@given(
    st.recursive(st.none() | st.text() | st.floats(), lambda c: st.lists(c) | st.dictionaries(st.text(), c))
)
def test_any_json_is_a_spec_or_refused(value):
    try:
        load_spec(json.dumps(value).encode(), 'x')
    except SpecError:
        pass


POINTER = f'version https://git-lfs.github.com/spec/v1\noid sha256:{"a" * 64}\nsize 12345\n'


@pytest.mark.parametrize('checksum', [False, True])
@pytest.mark.parametrize('name', ['spec.json', 'metadata.json'])
def test_a_pointer_of_git_lfs_is_named(name, checksum, tmp_path):
    """As a clone without Git LFS has it."""
    with bags.DatasetWriter(tmp_path / 'd', {'id': 'int'}, checksum=checksum, metadata={'a': 1}) as writer:
        writer.append({'id': 1})
    (tmp_path / 'd' / name).write_text(POINTER)
    match = (
        rf'{name}: .*expected JSON, (got|not) a Git LFS pointer, which `git lfs pull` replaces by the file'
    )
    with pytest.raises((bags.CorruptError, bags.SpecError), match=match):
        assert bags.open(tmp_path / 'd').metadata == {}
    assert any('a Git LFS pointer' in str(each) for each in bags.verify(tmp_path / 'd'))
