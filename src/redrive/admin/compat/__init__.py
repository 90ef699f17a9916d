"""Endpoints that two documented systems already call: Bookly's `/dlq` and the file pipeline's `/admin/dlq`.

They show the same dead letters as `/api/v1`, in the words of those documents. `bookly` and `pipeline` are the routes,
`bookly_schemas` and `pipeline_schemas` what they take and answer.
"""
