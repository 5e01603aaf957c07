// The findings and scores of `bags check --save`, in a dataset that `bags view --scores` shows.

import {fieldIn} from './condition';
import type {Dataset} from './dataset';
import {NdArray} from './values';

export type Severity = 'error' | 'warning' | 'info';

export interface Finding {
  check: string;
  severity: Severity;
  /** Null: the dataset. */
  field: string | null;
  detail: string;
  value: number | null;
  bound: number;
  /** Number of datapoints with a score above the bound. */
  count: number;
  /** The datapoints, worst first, of which the first ones are listed. */
  datapoints: number[];
  /** Where in the worst datapoint. */
  seconds: number | null;
  /** Another datapoint that the worst one is compared with. */
  other: number | null;
}

/** A finding in a datapoint: its score, where it was found in seconds, and the other datapoint. */
export interface Found {
  finding: Finding;
  score: number;
  span: [number, number] | null;
  other: number | null;
}

/** Returns the findings in the metadata, worst first; null without scores. Entries of another form are left out. */
export function findingsOf(dataset: Dataset): Finding[] | null {
  const checked = dataset.metadata.checked as {findings?: unknown} | null | undefined;
  if (!checked || typeof checked !== 'object' || !Array.isArray(checked.findings)) return null;
  return checked.findings.map(found => readFinding(dataset, found)).filter(finding => finding !== null);
}

function readFinding(dataset: Dataset, found: unknown): Finding | null {
  if (!found || typeof found !== 'object') return null;
  const {check, severity, field, detail, value, bound, count, datapoints, seconds, other} = found as Record<string, unknown>;
  const isRow = (row: unknown): row is number => Number.isSafeInteger(row) && (row as number) >= 0 && (row as number) < dataset.length;
  const number = (given: unknown) => typeof given === 'number' ? given : null;
  if (typeof check !== 'string' || typeof bound !== 'number' || !['error', 'warning', 'info'].includes(severity as string)) return null;
  return {
    check, severity: severity as Severity, bound,
    field: typeof field === 'string' ? field : null,
    detail: typeof detail === 'string' ? detail : '',
    value: number(value), count: number(count) ?? 0, seconds: number(seconds),
    datapoints: Array.isArray(datapoints) ? datapoints.filter(isRow) : [],
    other: isRow(other) ? other : null,
  };
}

/** Returns the field with the scores of a finding; null if there is none. */
export function scoreOf(dataset: Dataset, {field, check}: Finding): string | null {
  const name = `${field}.${check}`;
  return field !== null && dataset.spec.has(name) ? name : null;
}

/** The fields that a check added: they are shown where they are chosen. */
export function scoreFields(dataset: Dataset): Set<unknown> {
  const checked = dataset.metadata.checked as {scores?: unknown} | null | undefined;
  return new Set(checked && typeof checked === 'object' && Array.isArray(checked.scores) ? checked.scores : []);
}

/** Returns the condition of the datapoints with a finding; null if they have no scores. */
export function conditionOf(dataset: Dataset, finding: Finding): string | null {
  const name = scoreOf(dataset, finding);
  return name === null ? null : `${fieldIn(name)} > ${finding.bound}`;
}

/** Returns what was found in a datapoint, worst first. */
export async function foundIn(dataset: Dataset, index: number): Promise<Found[]> {
  const all = await Promise.all((findingsOf(dataset) ?? []).map(async finding => {
    const name = scoreOf(dataset, finding);
    const score = name === null ? null : await dataset.value(index, name);
    if (typeof score !== 'number' || !(score > finding.bound)) return null;
    const [span, other] = await Promise.all(['span', 'other'].map(end => dataset.spec.has(`${name}.${end}`) ? dataset.value(index, `${name}.${end}`) : null));
    return {finding, score, span: spanOf(span), other: typeof other === 'number' && other >= 0 && other < dataset.length ? other : null};
  }));
  return all.filter(found => found !== null);
}

function spanOf(value: unknown): [number, number] | null {
  if (!(value instanceof NdArray) || value.data.length !== 2) return null;
  const [start, end] = Array.from(value.data as ArrayLike<number>, Number);
  return Number.isFinite(start) && end >= start ? [start, end] : null;
}
