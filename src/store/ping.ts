import { sql } from 'kysely'
import type { Clock } from '#lib/clock.ts'
import type { Store } from '#store/connect.ts'

/** Whether the store answers within `ms`. */
export async function ping(db: Store, clock: Clock, ms: number): Promise<boolean> {
  const late = new Promise<false>((resolve) => clock.after(ms, () => resolve(false)))
  const answered = sql`select 1`.execute(db).then(
    () => true,
    () => false,
  )
  return Promise.race([answered, late])
}
