// Lists go by key: the cursor is the key of the last record that was shown, so that nothing is skipped or shown twice
// while others are made.

/** `rows` were read with a limit of one more than `limit`: the one too many says that there is a next page. */
export function pageOf<T>(
  rows: readonly T[],
  limit: number,
  keyOf: (row: T) => string,
): { shown: T[]; nextCursor: string | null } {
  const shown = rows.slice(0, limit)
  const last = rows.length > limit ? shown.at(-1) : undefined
  return { shown, nextCursor: last === undefined ? null : keyOf(last) }
}
