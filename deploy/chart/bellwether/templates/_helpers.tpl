{{- /* Made by `make generate`; changes here are lost. */ -}}

{{- /* The operator's image, by digest where one is given. Database pods copy the agent from the same. */ -}}
{{- define "bellwether.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- /* Environment variables that are there only when their value is set. */ -}}
{{- define "bellwether.env" -}}
{{- with .Values.watchNamespaces }}
- name: BELLWETHER_NAMESPACES
  value: {{ join "," . | quote }}
{{- end }}
{{- with .Values.log }}
- name: BELLWETHER_LOG
  value: {{ . | quote }}
{{- end }}
{{- end -}}

{{- /* A certificate of the user's own: where it is mounted, and from which Secret. */ -}}
{{- define "bellwether.args" -}}
{{- if .Values.tlsSecret }}
- --tls-certificate=/etc/bellwether/tls/tls.crt
- --tls-key=/etc/bellwether/tls/tls.key
{{- end }}
{{- end -}}

{{- define "bellwether.volumeMounts" -}}
{{- if .Values.tlsSecret }}
- name: tls
  mountPath: /etc/bellwether/tls
  readOnly: true
{{- end }}
{{- end -}}

{{- define "bellwether.volumes" -}}
{{- with .Values.tlsSecret }}
- name: tls
  secret:
    secretName: {{ . | quote }}
    defaultMode: 0444
{{- end }}
{{- end -}}

{{- /* Ports of the API server, as a network policy has them. */ -}}
{{- define "bellwether.apiServerPorts" -}}
{{- range .Values.networkPolicy.apiServerPorts }}
- port: {{ . | int }}
  protocol: TCP
{{- end }}
{{- end -}}
