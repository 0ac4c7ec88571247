// The API's shape of an org's API key: never its secret.
import { roleOf } from '#engine/caller.ts'
import type { Role } from '#api/base.ts'
import type { OrgKey } from '#store/auth-keys.ts'

export type OrgKeyRecord = {
  id: string
  name: string
  role: Role
  created_at: string
  expires_at: string | null
  last_used_at: string | null
}

export function orgKeyRecordOf(key: OrgKey): OrgKeyRecord {
  return {
    id: key.id,
    name: key.name,
    role: roleOf(key.role),
    created_at: key.createdAt.toISOString(),
    expires_at: key.expiresAt?.toISOString() ?? null,
    last_used_at: key.lastUsedAt?.toISOString() ?? null,
  }
}
