// Lists go by key: the cursor is the id of the last record that was shown, so that nothing is skipped or shown twice
// while others are made.

/** `rows` were read with a limit of one more than `limit`: the one too many says that there is a next page. */
export function pageOf<T extends { id: string }>(
  rows: readonly T[],
  limit: number,
): { shown: T[]; nextCursor: string | null } {
  const shown = rows.slice(0, limit)
  return { shown, nextCursor: rows.length > limit ? (shown.at(-1)?.id ?? null) : null }
}
