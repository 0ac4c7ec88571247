// Questions and progress, for people at a terminal only. Loaded lazily: scripts never pay for it.
import type * as Clack from '@clack/prompts'
import type { Settings } from '#cli/settings.ts'
import { Interrupted } from '#cli/failure.ts'

export type Progress = {
  say(text: string): void
  /** The last word; undefined leaves no line behind. */
  done(text?: string): void
  fail(text: string): void
}

export type Prompts = {
  /** Yes or no. Headless: yes, without asking (D9). */
  confirm(question: string): Promise<boolean>
  /** One of several. Headless: undefined. */
  choose<T extends string>(question: string, options: readonly T[]): Promise<T | undefined>
  /** A moving line on stderr at a terminal; nothing elsewhere. */
  progress(text: string): Promise<Progress>
}

/** What terminals have had since punched cards. */
const COLUMNS_UNKNOWN = 80

const silent: Progress = { say() {}, done() {}, fail() {} }

export function createPrompts(
  settings: Settings,
  stderr: NodeJS.WriteStream,
  signal: AbortSignal,
): Prompts {
  // A terminal that does not tell its size (a fresh pty of a container or of a test) has 0 columns, which would be
  // taken at its word: one letter a line.
  if (stderr.isTTY && !stderr.columns) stderr.columns = COLUMNS_UNKNOWN
  const clack = (): Promise<typeof Clack> => import('@clack/prompts')
  return {
    async confirm(question) {
      if (settings.headless) return true
      const { confirm, isCancel } = await clack()
      const answer = await confirm({
        message: question,
        initialValue: false,
        signal,
        output: stderr,
      })
      if (isCancel(answer)) throw new Interrupted()
      return answer
    },
    async choose(question, options) {
      if (settings.headless) return undefined
      const { select, isCancel } = await clack()
      const answer = await select<string>({
        message: question,
        options: options.map((value) => ({ value, label: value })),
        signal,
        output: stderr,
      })
      if (isCancel(answer)) throw new Interrupted()
      return options.find((option) => option === answer)
    },
    async progress(text) {
      if (settings.headless || !stderr.isTTY || !settings.colour) return silent
      const { spinner } = await clack()
      const spinning = spinner({ output: stderr, signal, withGuide: false })
      spinning.start(text)
      return {
        say: (next) => spinning.message(next),
        done: (last) => (last === undefined ? spinning.clear() : spinning.stop(last)),
        fail: (last) => spinning.error(last),
      }
    },
  }
}
