// The platform that `ccp dev` runs on this machine: it leaves its address and a key in the state folder.
import { readFile, rm, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { z } from 'zod'

const DevFile = z.object({
  url: z.string(),
  /** Where nodes dial. */
  sessions: z.string(),
  pid: z.number(),
  /** Of the process, by the kernel: a pid is used again one day. */
  started: z.string(),
})
export type DevFile = z.infer<typeof DevFile>

export type LocalPlatform = DevFile & { key: string | undefined }

type Place = { home: string; clutchHome: string | undefined }

/** The state folder (D20): CLUTCH_HOME, else /var/lib/clutch for root, else ~/.local/state/clutch. */
export function stateHome({ home, clutchHome }: Place, uid: number): string {
  if (clutchHome !== undefined) return resolve(clutchHome)
  return uid === 0 ? '/var/lib/clutch' : join(home, '.local/state/clutch')
}

export const devKeyPath = (state: string): string => join(state, 'secrets', 'dev-key')
const devFilePath = (state: string): string => join(state, 'dev.json')

/** Undefined when none runs here, or when it is somebody else's. */
export async function readLocalPlatform(
  place: Place,
  uid: number,
): Promise<LocalPlatform | undefined> {
  const state = stateHome(place, uid)
  try {
    const file = DevFile.parse(JSON.parse(await readFile(devFilePath(state), 'utf8')))
    if ((await startOf(file.pid)) !== file.started) return undefined
    return { ...file, key: await readKey(state) }
  } catch {
    return undefined
  }
}

export async function readKey(state: string): Promise<string | undefined> {
  const text = await readFile(devKeyPath(state), 'utf8').catch(() => '')
  return text.trim() === '' ? undefined : text.trim()
}

export async function writeDevFile(state: string, file: DevFile): Promise<void> {
  await writeFile(devFilePath(state), `${JSON.stringify(file)}\n`, { mode: 0o644 })
}

export async function removeDevFile(state: string): Promise<void> {
  await rm(devFilePath(state), { force: true })
}

/** When a process was started, in ticks since boot (proc(5), field 22); '' when there is none. */
export async function startOf(pid: number): Promise<string> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '')
  // The name in brackets may hold anything: count from its end.
  return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? ''
}
