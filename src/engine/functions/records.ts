// Rows of functions as the API shows them (000-74, D19).
import type { z } from 'zod'
import type { functionRecord, versionRecord } from '#api/functions.ts'
import { AppError } from '#lib/error.ts'
import type { FunctionRow, VersionFacts, VersionRow } from '#store/functions/functions.ts'

const facts = (row: VersionFacts) => ({
  sha256: row.componentSha256,
  size_bytes: row.sizeBytes,
  cpu_millis: row.cpuMillis,
  mem_mb: row.memMb,
  allow_community: row.allowCommunity,
  region: row.region,
  timeout_ms: row.timeoutMs,
  fuel_max: row.fuelMax,
})

export const toFunctionRecord = (row: FunctionRow): z.infer<typeof functionRecord> => ({
  id: row.id,
  name: row.name,
  version: row.version,
  ...facts(row),
  idempotent: row.idempotent,
  public: row.public,
  created_at: row.createdAt.toISOString(),
  updated_at: row.updatedAt.toISOString(),
})

export const toVersionRecord = (row: VersionRow): z.infer<typeof versionRecord> => ({
  version: row.version,
  current: row.current,
  ...facts(row),
  created_at: row.createdAt.toISOString(),
  created_by: row.createdBy,
})

export const noSuchFunction = (name: string): AppError =>
  new AppError('NOT_FOUND', `No function ${name} in this organization`, {
    details: { reason: 'NO_SUCH_FUNCTION', next: 'ccp functions list shows what is deployed' },
  })
