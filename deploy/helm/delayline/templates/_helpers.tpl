{{- define "delayline.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "delayline.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "delayline.release" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "delayline.labels" -}}
{{ include "delayline.selector" . }}
{{ include "delayline.release" . }}
{{- end }}

{{- define "delayline.image" -}}
{{ include "delayline.imageOf" (dict "image" .Values.image "version" .Chart.AppVersion) }}
{{- end }}

{{- define "delayline.watchImage" -}}
{{ include "delayline.imageOf" (dict "image" .Values.watch.image "version" .Chart.AppVersion) }}
{{- end }}

{{- define "delayline.imageOf" -}}
{{- with .image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.version }}{{ end }}
{{- end -}}
{{- end }}

{{- /* Not the nodes' labels: the watch is no peer of theirs. */}}
{{- define "delayline.watchLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}-watch
app.kubernetes.io/instance: {{ .Release.Name }}
{{ include "delayline.release" . }}
{{- end }}
