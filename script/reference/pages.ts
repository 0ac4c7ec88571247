// The pages of docs/reference, by file name.
import { cliPage } from './cli.ts'
import { configPage } from './config.ts'
import { errorsPage } from './errors.ts'
import { limitsPage } from './limits.ts'
import { proceduresPage } from './procedures.ts'

export async function referencePages(): Promise<Record<string, string>> {
  return {
    'procedures.md': proceduresPage(),
    'cli.md': cliPage(),
    'limits.md': await limitsPage(),
    'config.md': configPage(),
    'errors.md': errorsPage(),
  }
}
