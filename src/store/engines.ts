// The engines of this fleet. A row's beat grows while its engine lives; observers watch it stand still by their own
// monotonic time, and nobody compares clocks.
import type { Instant } from '#lib/clock.ts'
import type { Store } from '#store/connect.ts'

/** Writes the engine's row as it starts; a former self's beat goes on from where it stood. */
export async function startEngine(
  db: Store,
  row: { id: string; version: string; address: string; now: Instant },
): Promise<void> {
  const { id, version, address, now } = row
  await db
    .insertInto('engines')
    .values({ id, version, address, beat: 1, startedAt: new Date(now) })
    .onConflict((conflict) =>
      conflict.column('id').doUpdateSet((eb) => ({
        version,
        address,
        beat: eb('engines.beat', '+', 1),
        startedAt: new Date(now),
      })),
    )
    .execute()
}

/** Beats once and answers every engine's beat. */
export async function beatEngine(db: Store, id: string): Promise<{ id: string; beat: number }[]> {
  await db
    .updateTable('engines')
    .set((eb) => ({ beat: eb('beat', '+', 1) }))
    .where('id', '=', id)
    .execute()
  return db.selectFrom('engines').select(['id', 'beat']).execute()
}
