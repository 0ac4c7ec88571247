// Lists that come in pages, as one.
import type { Api } from '#cli/call.ts'

type Nodes = Awaited<ReturnType<Api['compute']['nodes']['list']>>['nodes']
type Functions = Awaited<ReturnType<Api['compute']['functions']['list']>>['functions']

export const listNodes = (api: Api, orgId: string): Promise<Nodes> =>
  everyPage(async (page) => {
    const { nodes, next_cursor } = await api.compute.nodes.list({ orgId, ...page })
    return { rows: nodes, next_cursor }
  })

export const listFunctions = (api: Api, orgId: string): Promise<Functions> =>
  everyPage(async (page) => {
    const { functions, next_cursor } = await api.compute.functions.list({ orgId, ...page })
    return { rows: functions, next_cursor }
  })

async function everyPage<Row>(
  get: (page: { cursor?: string }) => Promise<{ rows: Row[]; next_cursor: string | null }>,
): Promise<Row[]> {
  const rows: Row[] = []
  for (let page: { cursor?: string } = {}; ;) {
    const found = await get(page)
    rows.push(...found.rows)
    if (found.next_cursor === null) return rows
    page = { cursor: found.next_cursor }
  }
}
