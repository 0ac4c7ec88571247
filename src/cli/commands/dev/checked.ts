// Numbers of `ccp dev`, which no contract checks.
import { AppError } from '#lib/error.ts'

/** More sessions than one engine is built for (ND-20). */
const SIMULATED_MAX = 10_000

export function checkedPort(flag: string, port: number | undefined): number | undefined {
  if (port === undefined || (Number.isInteger(port) && port >= 1 && port <= 65_535)) return port
  throw new AppError('INVALID', `${flag} must be a whole number from 1 to 65535, not ${port}`)
}

export function checkedCount(flag: string, count = 0): number {
  if (Number.isInteger(count) && count >= 0 && count <= SIMULATED_MAX) return count
  throw new AppError(
    'INVALID',
    `${flag} must be a whole number from 0 to ${SIMULATED_MAX}, not ${count}`,
  )
}
