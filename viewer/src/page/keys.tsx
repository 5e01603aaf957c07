// The keys of the page, which `?` shows.

import {useLayoutEffect, useRef} from 'preact/hooks';

const KEYS = [
  ['space', 'play, pause; on a button, presses it'],
  ['← →', 'a frame, or the shortest item, back or forward; without time the items of the panel in focus'],
  ['[ ]', 'the datapoint before, after'],
  ['m', 'mark'],
  ['Esc', 'the grid'],
  ['j k, arrows', 'in the grid: the datapoint after, before; Enter opens it'],
  ['Ctrl + wheel', 'zooms an image; drag moves it, a double click fits it'],
  ['drag in a curve', 'zooms all curves; a double click shows them whole'],
  ['?', 'these keys'],
];

/** Calls a function for each key, unless it is for what has the focus. */
export function useKeys(onKey: (event: KeyboardEvent) => void): void {
  // `useEffect` runs after the page is drawn: a key pressed before that would act on the previous page.
  useLayoutEffect(() => {
    const listener = (event: KeyboardEvent) => { if (!isForTarget(event)) onKey(event); };
    addEventListener('keydown', listener);
    return () => removeEventListener('keydown', listener);
  });
}

/** Tells whether a key is for what has the focus: text that is written, a button that is pressed. */
function isForTarget(event: KeyboardEvent): boolean {
  const target = event.target as HTMLElement;
  if (event.ctrlKey || event.metaKey || event.altKey || target.closest('dialog[open]')) return true;
  if (/^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) return !['range', 'checkbox'].includes((target as HTMLInputElement).type) || event.key === ' ' && (target as HTMLInputElement).type === 'checkbox';
  return [' ', 'Enter'].includes(event.key) && /^(BUTTON|A|SUMMARY|AUDIO)$/.test(target.tagName);
}

export function Keys() {
  const dialog = useRef<HTMLDialogElement>(null);
  useKeys(event => { if (event.key === '?') dialog.current!.showModal(); });
  return <>
    <button onClick={() => dialog.current!.showModal()} aria-label="Keys" title="Keys (?)">?</button>
    <dialog ref={dialog} aria-label="Keys" onClick={event => { if (event.target === event.currentTarget) event.currentTarget.close(); }}>
      <table class="keys"><tbody>{KEYS.map(([key, what]) => <tr key={key}><th scope="row"><kbd>{key}</kbd></th><td>{what}</td></tr>)}</tbody></table>
      <button onClick={() => dialog.current!.close()}>Close</button>
    </dialog>
  </>;
}
