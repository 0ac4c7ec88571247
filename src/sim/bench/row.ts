// What a bench measures: one row a figure.

export type Row = {
  name: string
  value: number
  unit: string
  /** What it was measured against, in the same run. */
  peer?: string
  /** Ours divided by the peer's. */
  ratio?: number
}

/** The value below which the given share (0 to 1) of the samples lies. */
export function percentile(samples: readonly number[], share: number): number {
  const sorted = samples.toSorted((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? NaN
}

/** Three significant digits: what such a run can tell. */
export function round(value: number): number {
  return Number(value.toPrecision(3))
}
