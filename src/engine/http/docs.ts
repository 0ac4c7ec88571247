// The reference of the API: the OpenAPI 3.1 document made from the contract, and a page that shows it, all from our own
// files.
import { readFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { ServerResponse } from 'node:http'
import { OpenAPIGenerator } from '@orpc/openapi'
import { ZodToJsonSchemaConverter } from '@orpc/zod/zod4'
import { contract } from '#api/contract.ts'
import { rawRoutes, type RawRoute } from '#api/raw.ts'
import { statusOf } from '#lib/error.ts'
import { send } from '#engine/http/answer.ts'
import { PAGE_POLICY, sendAsset } from '#engine/http/pages.ts'

export type Docs = {
  /** False for a path that is not of the docs. */
  serve(res: ServerResponse, path: string): Promise<boolean>
}

/** The files of swagger-ui that the page loads. */
const SWAGGER: Readonly<Record<string, string>> = {
  '/docs/swagger-ui.css': 'text/css; charset=utf-8',
  '/docs/swagger-ui-bundle.js': 'text/javascript; charset=utf-8',
}

export function createDocs(version: string): Docs {
  let document: Promise<string> | undefined
  return {
    async serve(res, path) {
      if (path === '/openapi.json') {
        document ??= openApi(version)
        send(res, 200, { type: 'application/json', body: await document })
        return true
      }
      if (path === '/docs' || path === '/docs/') return sendAsset(res, 'docs.html')
      if (path === '/docs/docs.js') return sendAsset(res, 'docs.js')
      const type = SWAGGER[path]
      if (type === undefined) return false
      const body = await readFile(join(swaggerFolder(), path.slice('/docs/'.length)))
      res.setHeader('cache-control', 'public, max-age=86400')
      res.setHeader('content-security-policy', PAGE_POLICY)
      send(res, 200, { type, body })
      return true
    },
  }
}

const swaggerFolder = (): string =>
  dirname(fileURLToPath(import.meta.resolve('swagger-ui-dist/package.json')))

/** The document as JSON text. */
async function openApi(version: string): Promise<string> {
  const generator = new OpenAPIGenerator({ schemaConverters: [new ZodToJsonSchemaConverter()] })
  const document = await generator.generate(contract, {
    info: {
      title: 'Clutch',
      version,
      description:
        'Runs your code on hardware that dials out. Send an API key of your organization in x-api-key.',
    },
    components: {
      securitySchemes: {
        apiKey: { type: 'apiKey', in: 'header', name: 'x-api-key' },
        bearer: { type: 'http', scheme: 'bearer' },
      },
    },
    security: [{ apiKey: [] }, { bearer: [] }],
  })
  const paths = { ...document.paths }
  for (const route of rawRoutes)
    paths[route.path] = { ...paths[route.path], [route.method.toLowerCase()]: rawOperation(route) }
  return JSON.stringify({ ...document, paths })
}

/** Every code has its status at every address (D52). */
const refusals = Object.entries(statusOf).map(
  ([code, status]) => [status, `${code}, as everywhere`] as const,
)

/** As OpenAPI has it. */
function rawOperation(route: RawRoute): object {
  const parameter = (where: 'path' | 'query', name: string, description?: string): object => ({
    in: where,
    name,
    required: true,
    schema: { type: 'string' },
    ...(description === undefined ? {} : { description }),
  })
  const bytes = { schema: { type: 'string', format: 'binary' } }
  const answer = route.answer.type === 'application/json' ? { schema: { type: 'object' } } : bytes
  return {
    operationId: route.operationId,
    tags: [route.tag],
    summary: route.summary,
    description: route.about.join('\n\n'),
    parameters: [
      ...[...route.path.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => parameter('path', name)),
      ...route.query.map(({ name, about }) => parameter('query', name, about)),
    ],
    requestBody: {
      description: route.body,
      content: { 'application/octet-stream': bytes },
    },
    responses: {
      200: { description: route.answer.about, content: { [route.answer.type]: answer } },
      ...Object.fromEntries(
        [...refusals, ...route.statuses].map(([status, description]) => [status, { description }]),
      ),
    },
  }
}
