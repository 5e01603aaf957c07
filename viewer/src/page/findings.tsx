// What `bags check` found: in the dataset as a table, and in a datapoint as lines and on the time bar.

import type {Dataset} from '../bags/dataset';
import {conditionOf, type Finding, findingsOf, type Found} from '../bags/findings';
import type {Clock} from './clock';
import {countText} from './format';
import {defaultFields} from './grid';
import type {Marking} from './marks';
import {linkTo} from './route';

/** Datapoints of a finding that are linked. */
const MAX_LINKED = 5;

export function FindingsPage({dataset, marking}: {dataset: Dataset; marking: Marking}) {
  const findings = findingsOf(dataset) ?? [];
  return (
    <main class="facts findings" tabIndex={0}>
      {!findings.length && <p>{findingsOf(dataset) ? 'No findings.' : 'The dataset has no scores: bags view PATH --scores SCORES shows those of bags check PATH --save SCORES.'}</p>}
      {findings.length > 0 && <table>
        <thead><tr><th>severity</th><th>field</th><th>check</th><th>found</th><th>bound</th><th>datapoints</th><th></th></tr></thead>
        <tbody>{findings.map((finding, i) => <Line key={i} dataset={dataset} finding={finding} marking={marking} />)}</tbody>
      </table>}
    </main>
  );
}

function Line({dataset, finding, marking}: {dataset: Dataset; finding: Finding; marking: Marking}) {
  const {severity, field, check, detail, value, bound, count, datapoints} = finding;
  const filter = conditionOf(dataset, finding), rest = count - Math.min(MAX_LINKED, datapoints.length);
  const areMarked = datapoints.every(index => marking.marks.has(index));
  return (
    <tr data-check={check}>
      <th class={`severity ${severity}`}>{severity}</th>
      <td>{field}</td>
      <td><code>{check}</code><div class="faint">{detail}</div></td>
      <td class="number" data-label="found">{value === null ? '' : scoreText(value)}</td>
      <td class="number" data-label="bound">{scoreText(bound)}</td>
      <td>
        {datapoints.slice(0, MAX_LINKED).map((index, i) => <a key={index} class="row" href={linkTo({view: 'datapoint', at: index, with: i ? null : finding.other, t: i ? 0 : finding.seconds ?? 0})}>{index}</a>)}
        {rest > 0 && <span class="faint"> and {countText(rest, 'other')}</span>}
      </td>
      <td>
        {filter !== null && count > 0 && <a href={linkTo({view: 'grid', filter, sort: `-${field}.${check}`, fields: [...defaultFields(dataset), `${field}.${check}`], at: 0})}>Show in the grid</a>}
        {' '}
        {datapoints.length > 0 && <button disabled={areMarked} title="Marks become an edit: Share" onClick={() => marking.add(datapoints)}>Mark {datapoints.length.toLocaleString('en')}</button>}
      </td>
    </tr>
  );
}

/** The findings in a datapoint: a link goes to the time, or shows the other datapoint beside it. */
export function FoundIn({found, clock}: {found: Found[]; clock: Clock}) {
  if (!found.length) return null;
  return (
    <ul class="found" aria-label="Findings">
      {found.map(({finding: {severity, field, check, detail, bound}, score, span, other}) => (
        <li key={`${field} ${check}`}>
          <span class={`severity ${severity}`}>{severity}</span> {field} <code>{check}</code> {scoreText(score)} <span class="faint">&gt; {scoreText(bound)}</span>
          {span && <button class="link" onClick={() => clock.seek(span[0])}>{secondsText(span)}</button>}
          {other !== null && <a href={linkTo({with: other})}>beside {other.toLocaleString('en')}</a>}
          <span class="faint detail">{detail}</span>
        </li>))}
    </ul>
  );
}

/** Where on the time bar something was found. */
export function Spans({found, clock}: {found: Found[]; clock: Clock}) {
  const length = clock.end - clock.start, part = (time: number) => Math.min(1, Math.max(0, (time - clock.start) / length));
  return <>
    {found.map(({finding: {severity, field, check}, span}) => span && (
      <i key={`${field} ${check}`} class={`span ${severity}`} title={`${field} ${check}: ${secondsText(span)}`} data-check={check}
        style={{'--start': part(span[0]), '--end': part(span[1])}} />))}
  </>;
}

function secondsText([start, end]: [number, number]): string {
  return end > start ? `${start.toFixed(2)}–${end.toFixed(2)} s` : `${start.toFixed(2)} s`;
}

function scoreText(score: number): string {
  return String(Number(score.toPrecision(3)));
}
