// Who runs the embedded Postgres: it refuses to run as root, so root lends it a user.
import { execFile } from 'node:child_process'
import { userInfo } from 'node:os'
import { promisify } from 'node:util'
import { AppError, messageOf } from '#lib/error.ts'

const run = promisify(execFile)

export type Owner = {
  /** The OS users that may enter by their name (peer). */
  names: string[]
  /** Set when Postgres runs as another user than we do. */
  other: { uid: number; gid: number } | undefined
  uid: number
}

const POSTGRES_USER = 'postgres'

export async function postgresOwner(): Promise<Owner> {
  const me = whoAmI()
  if (me.uid !== 0) return { names: [me.username], other: undefined, uid: me.uid }
  const other = (await lookUp()) ?? (await create())
  return { names: [POSTGRES_USER, me.username], other, uid: other.uid }
}

function whoAmI(): { uid: number; username: string } {
  try {
    return userInfo()
  } catch (error) {
    throw new AppError('INVALID_STATE', `The user ${process.getuid?.()} has no name`, {
      cause: error,
      details: {
        reason: 'USER_UNNAMED',
        next: 'Postgres lets users in by name: add the user to /etc/passwd, or set DATABASE_URL',
      },
    })
  }
}

async function lookUp(): Promise<{ uid: number; gid: number } | undefined> {
  try {
    const id = async (flag: string): Promise<number> =>
      Number((await run('id', [flag, POSTGRES_USER])).stdout)
    return { uid: await id('-u'), gid: await id('-g') }
  } catch {
    return undefined
  }
}

async function create(): Promise<{ uid: number; gid: number }> {
  const flags = ['--system', '--user-group', '--no-create-home', '--shell', '/usr/sbin/nologin']
  const failure = await run('/usr/sbin/useradd', [...flags, POSTGRES_USER]).then(
    () => '',
    (error: unknown) => messageOf(error),
  )
  // Another engine on this machine may have made it meanwhile: only the result counts.
  const made = await lookUp()
  if (made) return made
  throw new AppError('INVALID_STATE', `The user postgres cannot be made: ${failure}`, {
    details: {
      reason: 'POSTGRES_USER',
      next: `Make it: useradd ${flags.join(' ')} ${POSTGRES_USER}; or run as an ordinary user`,
    },
  })
}
