# bash completion for lnetctl and ulnet: they know their words themselves.
# Installed as /usr/share/bash-completion/completions/lnetctl, with a link named ulnet.
_ulnet_complete() {
    mapfile -t COMPREPLY < <("${COMP_WORDS[0]}" --complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _ulnet_complete lnetctl ulnet
