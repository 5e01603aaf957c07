// The page: its header, and the view that the URL names.

import {useEffect, useMemo, useRef, useState} from 'preact/hooks';

import {Dataset} from '../bags/dataset';
import {findingsOf} from '../bags/findings';
import {findKey, keyFields} from '../bags/keys';
import {RangeCache} from '../bags/ranges';
import {kindOf} from '../bags/values';
import {Chooser} from './chooser';
import {DatapointPage, defaultPanels} from './datapoint';
import {FieldsPage} from './fields';
import {FindingsPage} from './findings';
import {filterRows, sortRows} from './filter';
import {FilterBox, Order} from './find';
import {bytesText, countText} from './format';
import {defaultFields, Grid} from './grid';
import {Keys} from './keys';
import {Live, type Shown, useLive} from './live';
import {startWorker, useLoaded} from './load';
import {useMarks} from './marks';
import {dataUrl, linkTo, navigate, type Route, shownIn, useRoute} from './route';
import {downloadRows, Share} from './share';
import {Theme} from './theme';

export function App() {
  const url = useMemo(dataUrl, []);
  return url ? <Opened url={url} /> : <Ask />;
}

/** Asks for a dataset, where the URL names none. */
function Ask() {
  const [text, setText] = useState('');
  const open = (event: Event) => {
    event.preventDefault();
    location.search = `?data=${encodeURIComponent(text.trim())}`;
  };
  return (
    <main class="ask">
      <h1>Look at a dataset</h1>
      <p>The address of a folder that <code>bags</code> wrote, on any web server that answers GET with Range; on another host than
        this page, one that sends <code>Access-Control-Allow-Origin</code> and <code>Access-Control-Expose-Headers: Content-Range</code>.</p>
      <form onSubmit={open}>
        <input value={text} onInput={event => setText(event.currentTarget.value)} placeholder="https://host/episodes" aria-label="Address" required />
        <button>Open</button>
      </form>
    </main>
  );
}

function Opened({url}: {url: string}) {
  const shown = useLive(url), last = useRef<Dataset | null>(null);
  // Opened anew when an episode is committed; until then, the page keeps what it shows.
  const loaded = useLoaded(() => Dataset.open(url, new RangeCache()), [url, shown?.committed ?? null]);
  if (loaded.state === 'ready') last.current = loaded.value;
  if (shown && last.current) return <Viewer dataset={last.current} shown={shown} />;
  if (loaded.state === 'loading') return <main class="ask"><p class="notice">Opening {url} …</p></main>;
  if (loaded.state === 'error') {
    return <main class="ask"><h1>Not opened</h1><p class="failure" role="alert">{loaded.error.message}</p></main>;
  }
  return <Viewer dataset={loaded.value} shown={shown} />;
}

function Viewer({dataset, shown}: {dataset: Dataset; shown: Shown | null}) {
  const route = useRoute();
  const marking = useMarks(dataset.url), {marks, toggle} = marking;
  const [progress, setProgress] = useState(0);
  const findings = useMemo(() => findingsOf(dataset), [dataset]);
  const filtered = useRows(dataset, route, setProgress);
  const rows = filtered.state === 'ready' ? filtered.value : null;
  const name = decodeURIComponent(dataset.url.replace(/\/$/, '').split('/').pop() ?? '');
  // Ahead of the first video: a worker takes a while to start.
  useEffect(() => { if ([...dataset.spec.values()].some(type => kindOf(type) === 'video')) void startWorker(); }, [dataset]);
  useEffect(() => { document.title = `${route.view === 'datapoint' ? `${route.at} · ` : ''}${name} · bags`; });
  return (
    <div class="app">
      <header class="bar">
        <a class="title" href={linkTo({view: 'grid'})}>{name}</a>
        <span class="faint summary">
          {countText(dataset.length, 'datapoint')}{dataset.shardCount > 1 ? ` in ${countText(dataset.shardCount, 'shard')}` : ''}
          {rows && route.filter && `, ${rows.length.toLocaleString('en')} pass`}
        </span>
        <Jump dataset={dataset} route={route} />
        <FilterBox dataset={dataset} text={route.filter} busy={filtered.state === 'loading' && (route.filter || route.sort) ? progress : null} wrong={filtered.state === 'error'} />
        {route.view === 'grid' && <Order dataset={dataset} route={route} />}
        <nav>
          {route.view === 'grid' && <Chooser dataset={dataset} chosen={shownIn(dataset, route.fields) ?? defaultFields(dataset)} choose={fields => navigate({fields}, true)} />}
          {route.view === 'datapoint' && <Chooser dataset={dataset} chosen={shownIn(dataset, route.panels) ?? defaultPanels(dataset)} choose={panels => navigate({panels}, true)} />}
          <a href={linkTo({view: route.view === 'fields' ? 'grid' : 'fields'})}>{route.view === 'fields' ? 'Grid' : 'Fields'}</a>
          {findings && <a href={linkTo({view: route.view === 'findings' ? 'grid' : 'findings'})}>{route.view === 'findings' ? 'Grid' : `Findings ${findings.length}`}</a>}
          {marks.size > 0 && <>
            {marks.size === 2 && <a href={linkTo({view: 'datapoint', at: Math.min(...marks.keys()), with: Math.max(...marks.keys()), t: 0})}>Compare</a>}
            <button onClick={() => void downloadRows(dataset, route, [...marks.keys()].sort((a, b) => a - b), marks, 'marks.jsonl')}
              title="A line of JSON for each, with its index and note" aria-label={`Download ${marks.size} marks`}>★ {marks.size} ↓</button>
            <button onClick={() => { if (![...marks.values()].some(Boolean) || confirm('Remove all marks and their notes?')) marking.clear(); }} title="Remove all marks" aria-label="Remove all marks">✕</button>
          </>}
          <Share dataset={dataset} route={route} rows={rows} marks={marks} />
          <Keys />
          <Theme />
        </nav>
      </header>
      {filtered.state === 'error' && <p class="problem failure" role="alert">{filtered.error.message}</p>}
      {route.view === 'grid' && <Live shown={shown} />}
      {route.view === 'datapoint' && route.at < dataset.length
        ? <DatapointPage dataset={dataset} route={route} rows={rows} marking={marking} />
        : route.view === 'datapoint' ? <p class="notice" role="alert">There is no datapoint {route.at}: there are {dataset.length}.</p>
          : route.view === 'fields' ? <FieldsPage dataset={dataset} />
            : route.view === 'findings' ? <FindingsPage dataset={dataset} marking={marking} />
            : (route.filter || route.sort) && filtered.state !== 'ready' ? <p class="notice">{filtered.state === 'loading' ? 'Reading …' : 'No datapoints are shown, as the filter was not applied.'}</p>
              : <Grid dataset={dataset} route={route} rows={rows} marks={marks} toggleMark={toggle} />}
      <Traffic dataset={dataset} />
    </div>
  );
}

/** Runs the filter and orders what passes; null where all datapoints are shown as stored. */
function useRows(dataset: Dataset, {filter, sort}: Route, report: (part: number) => void) {
  return useLoaded(async () => {
    const params = () => new URLSearchParams(location.hash.slice(1));
    const progress = (part: number) => {
      report(part);
      return (params().get('filter') ?? '') === filter && (params().get('sort') ?? '') === sort;
    };
    report(0);
    const rows = filter ? await filterRows(dataset, filter, progress) : null;
    return sort ? sortRows(dataset, rows, sort, progress) : rows;
  }, [dataset, filter, sort]);
}

/** Goes to an index, or to the datapoint that has a key, by the index of a field. */
function Jump({dataset, route}: {dataset: Dataset; route: Route}) {
  const [problem, setProblem] = useState('');
  const go = async (event: Event) => {
    event.preventDefault();
    const input = (event.currentTarget as HTMLFormElement).elements.namedItem('index') as HTMLInputElement;
    const text = input.value.trim();
    const index = Number(text.replace(/[,_ ]/g, ''));
    try {
      const at = Number.isInteger(index) && text ? Math.min(dataset.length - 1, index < 0 ? dataset.length + index : index) : await findRow(dataset, text);
      setProblem('');
      if (at >= 0) navigate({at, t: 0});
      input.value = '';
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  return (
    <form onSubmit={go} class="filter jump">
      <input name="index" autocomplete="off" aria-label="Go to datapoint" class={problem ? 'wrong' : ''}
        title="An index, or a key as name=cat.jpg of a field that bags.create_index has indexed"
        placeholder={`Go to ${route.at.toLocaleString('en')} …`} />
      {problem && <span class="failure" role="alert" title={problem}>{problem}</span>}
    </form>
  );
}

async function findRow(dataset: Dataset, text: string): Promise<number> {
  const [, field, key] = /^([^=]+?)\s*=\s*(.*)$/.exec(text) ?? [null, null, text];
  const names = field === null ? keyFields(dataset) : [field];
  let indexed = 0;
  for (const name of names) {
    const found = await findKey(dataset, name, key.replace(/^(["'])(.*)\1$/, '$2'));
    if (found !== null) indexed += 1;
    if (found !== null && found >= 0) return found;
  }
  throw new Error(indexed ? `no datapoint has the key ${key}` : field !== null && !dataset.spec.has(field) ? `no field ${field}`
    : `no index of ${field ?? 'any field'}: bags.create_index makes one; a filter finds it too`);
}

/** What was read so far, by the page itself. */
function Traffic({dataset}: {dataset: Dataset}) {
  const [, update] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => update(count => count + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  return <footer class="faint" title="Read by this page; videos read their ranges by themselves">{bytesText(dataset.cache.bytes)} in {countText(dataset.cache.requests, 'request')}</footer>;
}
