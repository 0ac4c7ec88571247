// How functions read to people.
import type { z } from 'zod'
import type { functionRecord } from '#api/functions.ts'

export type FunctionRecord = z.infer<typeof functionRecord>

export const placementText = (f: { allow_community: boolean }): string =>
  f.allow_community ? 'COMMUNITY OK' : 'SECURE ONLY'

/** Kilobytes, as the function list has them (000-57). */
export const kilobytes = (bytes: number): string => `${Math.ceil(bytes / 1024)} KB`
