package page

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// guarded refuses what a page of another site sends, and tells browsers to keep to what is here.
func guarded(host string, handler http.Handler) http.Handler {
	handler = http.NewCrossOriginProtection().Handler(handler)

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "+
			"form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "same-origin")
		header.Set("Cache-Control", "no-store")

		// Another site's name may lead here (DNS rebinding), and its scripts would read what is shown.
		if !known(r.Host, host) {
			http.Error(w, "this host name is not served here", http.StatusMisdirectedRequest)

			return
		}

		handler.ServeHTTP(w, r)
	})
}

// known says whether a request names this machine or the host that is listened on. No DNS leads to an
// address: where all are listened on, it may be any.
func known(requested, listened string) bool {
	if host, _, err := net.SplitHostPort(requested); err == nil {
		requested = host
	}

	requested = strings.Trim(strings.ToLower(requested), "[]")
	if requested == "localhost" || requested == strings.ToLower(listened) {
		return requested != ""
	}

	address, err := netip.ParseAddr(requested)
	if err != nil {
		return false
	}

	all, err := netip.ParseAddr(listened)

	return address.Unmap().IsLoopback() || err == nil && all.IsUnspecified()
}
