// A box that scrolls, which is a tab stop while it has more than it shows.

import type {ComponentChildren, JSX} from 'preact';
import {useEffect, useLayoutEffect, useRef} from 'preact/hooks';

interface Props {
  as?: 'div' | 'pre';
  /** A box without a class only scrolls. */
  class?: string;
  /** What it holds, for those who do not see it. */
  label: string;
  style?: JSX.CSSProperties;
  children: ComponentChildren;
}

export function Scroll({as: Tag = 'div', class: name, label, style, children}: Props) {
  const box = useRef<any>(null);
  const measure = () => {
    const element: HTMLElement = box.current;
    if (element.scrollHeight > element.clientHeight + 1 || element.scrollWidth > element.clientWidth + 1) {
      element.tabIndex = 0;
      element.setAttribute('role', 'group');
      element.setAttribute('aria-label', label);
    } else for (const attribute of ['tabindex', 'role', 'aria-label']) element.removeAttribute(attribute);
  };
  useLayoutEffect(measure);
  useEffect(() => {
    const observer = new ResizeObserver(measure);
    for (const element of [box.current, box.current.firstElementChild]) if (element) observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return <Tag class={name ?? 'scroll'} style={style} ref={box} dir="auto">{children}</Tag>;
}
