// Light or dark: as the system, until one is chosen.

import {useState} from 'preact/hooks';

const KEY = 'bags theme';

/** Gives the page its theme; returns whether it is dark. */
export function applyTheme(): boolean {
  let chosen: string | null = null;
  try {
    chosen = localStorage.getItem(KEY);
  } catch { /* A private window. */ }
  const dark = chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  show(dark);
  return dark;
}

function show(dark: boolean): void {
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
  dispatchEvent(new Event('theme'));
}

export function Theme() {
  const [dark, setDark] = useState(() => document.documentElement.dataset.theme === 'dark');
  const change = () => {
    setDark(!dark);
    show(!dark);
    try {
      localStorage.setItem(KEY, dark ? 'light' : 'dark');
    } catch { /* A private window. */ }
  };
  return <button onClick={change} aria-label={dark ? 'Light theme' : 'Dark theme'}>{dark ? '☀' : '☾'}</button>;
}
