// The Python of what the page shows.

import type {Dataset} from '../bags/dataset';
import type {Route} from './route';

/** Returns a program that opens the dataset and makes the view of the page: its filter, order, fields, datapoint and marks. */
export function pythonOf(dataset: Dataset, route: Route, marks: number[] = []): string {
  const text = (value: string) => JSON.stringify(value);
  const names = (fields: string[]) => `[${fields.map(text).join(', ')}]`;
  const lines = ['import bags', '', `dataset = bags.open(${text(sourceOf(dataset))})`];
  if (route.view === 'datapoint') {
    const panels = route.panels ? `, ${names(route.panels)}` : '';
    lines.push(`datapoint = dataset[${route.at}${panels}]`);
    if (route.with !== null) lines.push(`other = dataset[${route.with}${panels}]`);
  } else {
    let view = 'dataset';
    const set = (value: string) => {
      lines.push(`view = ${value}`);
      view = 'view';
    };
    if (route.filter) set(`dataset.filter(${text(route.filter)})`);
    const falling = route.sort.startsWith('-') && !dataset.spec.has(route.sort), field = falling ? route.sort.slice(1) : route.sort;
    if (dataset.spec.has(field)) {
      const [first, missing] = falling ? [1, 0] : [0, 1];
      lines.push(dataset.type(field).sequence ? `values = ${view}.lengths(${text(field)}).tolist()` : `values = [row[${text(field)}] for row in ${view}.select(fields=${text(field)})]`,
        `keys = [(${missing},) if value is None or value != value else (${first}, value) for value in values]`,
        `order = sorted(range(len(keys)), key=keys.__getitem__${falling ? ', reverse=True' : ''})`);
      set(`${view}.select(order)`);
    }
    if (route.view === 'grid' && route.fields?.length) set(`${view}.select(fields=${names(route.fields)})`);
  }
  if (marks.length) lines.push(`marked = dataset.select([${marks.join(', ')}])`);
  return `${lines.join('\n')}\n`;
}

/** Returns the command that saves the dataset without the marked datapoints. */
export function editOf(dataset: Dataset, marks: number[]): string {
  const source = sourceOf(dataset);
  const path = /^[\w@%+=:,./-]+$/.test(source) ? source : `'${source.replaceAll("'", `'"'"'`)}'`;
  return `bags edit ${path} clean --drop ${marks.join(',')}`;
}

/** The path that `bags view` was given, or else the address of the dataset. */
function sourceOf(dataset: Dataset): string {
  const meta = document.querySelector<HTMLMetaElement>('meta[name="bags-source"]');
  const served = meta?.dataset.url && new URL(`${meta.dataset.url}/`, location.href.replace(/[?#].*$/, '')).href;
  return served === dataset.url ? meta!.content : dataset.url.replace(/\/$/, '');
}
