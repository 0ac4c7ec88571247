// The reference page: the document of this engine, nothing from elsewhere.
SwaggerUIBundle({ url: '/openapi.json', dom_id: '#docs', validatorUrl: null, deepLinking: true })
