# bash completion for lnetctl, ulnet and lst: they know their words themselves.
# Installed as /usr/share/bash-completion/completions/lnetctl, with links named ulnet and lst.
_ulnet_complete() {
    mapfile -t COMPREPLY < <("${COMP_WORDS[0]}" --complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _ulnet_complete lnetctl ulnet lst
