"""A process that writes datasets for its parent: a line of JSON for each, and one for its result.

A task has `writer`, `resume`, `path`, `start` (the first id), `count`, `options`, and `wait`, seconds. The
result is the name of an exception, or `ok`.
"""

import json
import sys
import time
import warnings

import bags

SPEC = {'id': 'int(8)', 'text': 'utf8'}


def write(task):
    """Writes the datapoints of a task; each text is computed from its id."""
    storage = {'storage_options': task['options']}
    resume, ids = task['resume'], range(task['start'], task['start'] + task['count'])
    if task['writer'] == 'copy':
        with bags.open(f'memory://source-{task["start"]}') as source:
            bags.copy(source, task['path'], shard_length=2, resume=resume, progress=False, **storage)
        return
    if task['writer'] == 'export':
        source, options = f'memory://source-{task["start"]}', {'resume': resume, 'shard_length': 2, **storage}
        bags.export(source, task['path'], format=task['format'], progress=False, **options)
        return
    if task['writer'] == 'folder':
        writer = bags.DatasetWriter(task['path'], SPEC, resume=resume, **storage)
    else:
        options = {'shard_start': task.get('first', 0), 'shard_step': task.get('step', 1), **storage}
        writer = bags.ShardedDatasetWriter(task['path'], SPEC, shard_length=2, resume=resume, **options)
    with writer:
        for id in ids:
            time.sleep(task['wait'] / task['count'])
            writer.append({'id': id, 'text': f'text {id}'})


def main():
    warnings.simplefilter('ignore')
    for line in sys.stdin:
        task = json.loads(line)
        if task['writer'] in ('copy', 'export'):
            path, id = f'memory://source-{task["start"]}', f'source {task["start"]}'
            with bags.DatasetWriter(path, SPEC, resume=True, id=id) as source:
                for id in range(task['start'], task['start'] + task['count']):
                    if len(source) < task['count']:
                        source.append({'id': id, 'text': f'text {id}'})
        time.sleep(task['late'])
        try:
            write(task)
            result = 'ok'
        except Exception as exc:
            result = f'{type(exc).__name__}: {exc}'
        sys.stdout.write(json.dumps(result) + '\n')
        sys.stdout.flush()


if __name__ == '__main__':
    main()
