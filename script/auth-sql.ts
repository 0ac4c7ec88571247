// Prints the SQL of better-auth's tables that no migration has yet; with `--check` there must be none.
// After an upgrade of better-auth: what is new stands in its `create table` line as a whole. Write the difference into the
// next numbered migration, and the line into part 1 of 0001 only if no release has it yet.
import { getMigrations } from 'better-auth/db/migration'
import { createBetterAuth } from '#engine/auth-better.ts'
import { silentLogger } from '#lib/log.ts'
import { systemRandom } from '#lib/random.ts'
import { connect } from '#store/connect.ts'
import { migrationFiles } from '#store/migrate.ts'
import { emptyTestTarget, type Scope } from '#store/test-database.ts'

const ends: (() => Promise<void>)[] = []
const scope: Scope = { after: (fn) => void ends.push(fn) }
try {
  const wanted = (await generate()).split('\n').filter((line) => line.trim() !== '')
  const text = (await migrationFiles()).map((file) => file.text).join('\n')
  const missing = wanted.filter((line) => !text.includes(line))
  if (missing.length > 0) process.stdout.write(`${missing.join('\n\n')}\n`)
  if (process.argv.includes('--check') && missing.length > 0) {
    process.stderr.write(
      'better-auth wants tables that no migration makes: run script/auth-sql.ts\n',
    )
    process.exitCode = 1
  }
} finally {
  for (let end = ends.shift(); end; end = ends.shift()) await end()
}

/** For an empty database: on ours it would not know its columns again, which the store's names in snake_case hide. */
async function generate(): Promise<string> {
  const db = connect(await emptyTestTarget(scope), { max: 2 })
  try {
    const auth = createBetterAuth({
      db,
      log: silentLogger,
      random: systemRandom,
      now: () => 0,
      url: 'http://127.0.0.1',
      secret: Buffer.from(systemRandom.bytes(32)).toString('hex'),
      signUpOpen: false,
      signInsPerMinute: 1,
      mayMakeOrgs: async () => false,
    })
    return await (await getMigrations(auth.options)).compileMigrations()
  } finally {
    await db.destroy()
  }
}
