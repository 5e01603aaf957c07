// The state of the page, which is in its URL: `?data=` is the dataset, the rest stands after `#`.

import {useLayoutEffect, useState} from 'preact/hooks';

export interface Route {
  view: 'grid' | 'datapoint' | 'fields' | 'findings';
  /** Datapoint: the one shown, or the first one in the grid. */
  at: number;
  /** Another datapoint beside it; null: none. */
  with: number | null;
  /** Fields shown in the grid; null: those that fit. */
  fields: string[] | null;
  /** Fields shown of a datapoint; null: all. */
  panels: string[] | null;
  filter: string;
  /** The field that orders the grid, after a - from the largest; empty: as stored. */
  sort: string;
  /** Seconds of the time cursor. */
  t: number;
}

export function readRoute(): Route {
  const params = new URLSearchParams(location.hash.slice(1));
  const number = (name: string) => Math.max(0, Number(params.get(name)) || 0);
  const view = (['datapoint', 'fields', 'findings'] as const).find(name => name === params.get('view'));
  return {
    view: view ?? 'grid',
    at: Math.floor(number('at')),
    with: params.has('with') ? Math.floor(number('with')) : null,
    fields: namesIn(params, 'fields'),
    panels: namesIn(params, 'panels'),
    filter: params.get('filter') ?? '',
    sort: params.get('sort') ?? '',
    t: number('t'),
  };
}

function namesIn(params: URLSearchParams, key: string): string[] | null {
  return params.has(key) ? params.getAll(key).filter(Boolean) : null;
}

/** Of the fields that a URL names, those that the dataset has. */
export function shownIn(dataset: {spec: Map<string, unknown>}, names: string[] | null): string[] | null {
  return names && names.filter(name => dataset.spec.has(name));
}

function hashOf(route: Route): string {
  const params = new URLSearchParams();
  if (route.view !== 'grid') params.set('view', route.view);
  if (route.at) params.set('at', String(route.at));
  if (route.with !== null && route.view === 'datapoint') params.set('with', String(route.with));
  for (const key of ['fields', 'panels'] as const) {
    for (const name of route[key] ?? []) params.append(key, name);
    if (route[key] && !route[key].length) params.set(key, '');
  }
  if (route.filter) params.set('filter', route.filter);
  if (route.sort) params.set('sort', route.sort);
  if (route.t && route.view === 'datapoint') params.set('t', route.t.toFixed(3));
  return `#${params}`;
}

/** Changes the URL; with `replace` without a step in the history. */
export function navigate(change: Partial<Route>, replace = false): void {
  const hash = hashOf({...readRoute(), ...change});
  if (hash === location.hash) return;
  history[replace ? 'replaceState' : 'pushState'](null, '', hash);
  dispatchEvent(new Event('route'));
}

export function linkTo(change: Partial<Route>): string {
  return hashOf({...readRoute(), ...change});
}

export function useRoute(): Route {
  const [route, setRoute] = useState(readRoute);
  useLayoutEffect(() => {
    const update = () => setRoute(readRoute());
    for (const name of ['route', 'popstate', 'hashchange']) addEventListener(name, update);
    return () => {
      for (const name of ['route', 'popstate', 'hashchange']) removeEventListener(name, update);
    };
  }, []);
  return route;
}

/** The dataset that the URL of the page names, or else `bags view` wrote into the page. */
export function dataUrl(): string | null {
  const data = new URLSearchParams(location.search).get('data') ?? document.querySelector<HTMLMetaElement>('meta[name="bags-data"]')?.content;
  if (!data) return null;
  const url = new URL(data, location.href.replace(/[?#].*$/, ''));
  return ['http:', 'https:'].includes(url.protocol) ? url.href : null;
}
