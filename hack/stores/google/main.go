// A Google Cloud Storage to test with: fake-gcs-server, and what it leaves out of the XML API, which is the one that our client speaks.
//
// fake-gcs-server keeps the objects and decides conditions, in its JSON API. Of the XML API it knows reading and listing only, has no
// errors of it, and asks nobody who he is. So a PUT becomes an upload of the JSON API with the same condition, what went wrong is said in
// Google's documents, and who asks must show a token signed with the key of the service account that this program gives out at its start.
//
// From: a directory for the objects, the buckets there are, and where to write the account's key. It says where it listens when it does.
package main

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

// The name that fake-gcs-server knows its XML API by.
const xmlHost = "storage.googleapis.com"

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address to listen at")
	data := flag.String("data", "", "directory of the objects")
	buckets := flag.String("buckets", "", "the buckets there are, separated by commas")
	account := flag.String("account", "", "file to write the key of the service account into, as Google's console gives it out")
	certificate := flag.String("cert", "", "file of the certificate; without one it is plain HTTP")
	key := flag.String("key", "", "file of the certificate's key")
	flag.Parse()
	if err := serve(*listen, *data, strings.Split(*buckets, ","), *account, *certificate, *key); err != nil {
		log.Fatal(err)
	}
}

func serve(listen, data string, buckets []string, account, certificate, key string) error {
	objects, err := fakestorage.NewServerWithOptions(fakestorage.Options{StorageRoot: data, NoListener: true})
	if err != nil {
		return err
	}
	store := front{objects: objects.HTTPHandler(), buckets: map[string]bool{}}
	for _, bucket := range buckets {
		objects.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: bucket})
		store.buckets[bucket] = true
	}
	if store.trusted, err = giveOut(account); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Println("listening at", listener.Addr())
	server := http.Server{Handler: store, ReadHeaderTimeout: 10 * time.Second}
	if certificate != "" {
		return server.ServeTLS(listener, certificate, key)
	}
	return server.Serve(listener)
}

// giveOut makes a service account and writes its key where only its owner reads it.
func giveOut(file string) (*rsa.PublicKey, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	given, err := json.Marshal(map[string]string{
		"type":           "service_account",
		"project_id":     "tests",
		"private_key_id": "1",
		"private_key":    string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})),
		"client_email":   "backups@tests.iam.gserviceaccount.com",
		"client_id":      "1",
		"auth_uri":       "https://accounts.google.com/o/oauth2/auth",
		"token_uri":      "https://oauth2.googleapis.com/token",
	})
	if err != nil {
		return nil, err
	}
	return &key.PublicKey, os.WriteFile(file, given, 0o600)
}

type front struct {
	objects http.Handler
	buckets map[string]bool
	trusted *rsa.PublicKey
}

func (f front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	bucket, object, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch {
	case f.authenticate(r) != nil:
		say(w, http.StatusUnauthorized, "AuthenticationRequired", "Authentication required.")
	case !f.buckets[bucket]:
		say(w, http.StatusNotFound, "NoSuchBucket", "The specified bucket does not exist.")
	case r.Method == http.MethodPut:
		f.put(w, r, bucket, object)
	default:
		f.pass(w, r)
	}
}

// authenticate looks at a token that its owner signed himself (https://google.aip.dev/auth/4111).
func (f front) authenticate(r *http.Request) error {
	parts := strings.Split(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), ".")
	if len(parts) != 3 {
		return errors.New("no token")
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return err
	}
	signed := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err := rsa.VerifyPKCS1v15(f.trusted, crypto.SHA256, signed[:], signature); err != nil {
		return err
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return err
	}
	var claims struct{ Exp int64 }
	if err := json.Unmarshal(text, &claims); err != nil {
		return err
	}
	if time.Now().Unix() > claims.Exp {
		return errors.New("the token is of old")
	}
	return nil
}

// put uploads an object under the condition that the XML API has in a header, and the JSON API in the query.
func (f front) put(w http.ResponseWriter, r *http.Request, bucket, object string) {
	query := url.Values{"uploadType": {"media"}, "name": {object}}
	if generation := r.Header.Get("x-goog-if-generation-match"); generation != "" {
		query.Set("ifGenerationMatch", generation)
	}
	address := "http://" + xmlHost + "/upload/storage/v1/b/" + url.PathEscape(bucket) + "/o?" + query.Encode()
	upload, err := http.NewRequestWithContext(r.Context(), http.MethodPost, address, r.Body)
	if err != nil {
		say(w, http.StatusBadRequest, "InvalidURI", "Couldn't parse the specified URI.")
		return
	}
	upload.Header.Set("Content-Type", r.Header.Get("Content-Type"))
	answer := httptest.NewRecorder()
	f.objects.ServeHTTP(answer, upload)
	var made struct{ Generation, Etag string }
	if answer.Code == http.StatusOK {
		if err := json.Unmarshal(answer.Body.Bytes(), &made); err != nil {
			say(w, http.StatusInternalServerError, "InternalError", err.Error())
			return
		}
		w.Header().Set("ETag", fmt.Sprintf("%q", made.Etag))
		w.Header().Set("x-goog-generation", made.Generation)
		w.WriteHeader(http.StatusOK)
		return
	}
	sayInWords(w, answer.Code, answer.Body.String())
}

// pass has everything else done by the server itself, and says what went wrong in its place.
func (f front) pass(w http.ResponseWriter, r *http.Request) {
	r.Host = xmlHost
	f.objects.ServeHTTP(&answer{ResponseWriter: w}, r)
}

// answer passes on what went well, and puts Google's document in the place of what did not.
type answer struct {
	http.ResponseWriter
	replaced bool
}

func (a *answer) WriteHeader(status int) {
	// What can't be satisfied of a range is said as Google does already.
	if status < 400 || status == http.StatusRequestedRangeNotSatisfiable {
		a.ResponseWriter.WriteHeader(status)
		return
	}
	a.replaced = true
	sayInWords(a.ResponseWriter, status, "")
}

func (a *answer) Write(body []byte) (int, error) {
	if a.replaced {
		return len(body), nil
	}
	return a.ResponseWriter.Write(body)
}

func sayInWords(w http.ResponseWriter, status int, said string) {
	switch status {
	case http.StatusNotFound:
		say(w, status, "NoSuchKey", "The specified key does not exist.")
	case http.StatusPreconditionFailed:
		say(w, status, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold.")
	default:
		log.Println(status, said)
		say(w, status, "InternalError", "We encountered an internal error. Please try again.")
	}
}

func say(w http.ResponseWriter, status int, code, message string) {
	for _, name := range []string{"Content-Length", "Content-Encoding"} {
		w.Header().Del(name)
	}
	w.Header().Set("Content-Type", "application/xml; charset=UTF-8")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<?xml version='1.0' encoding='UTF-8'?><Error><Code>%s</Code><Message>%s</Message></Error>", code, message)
}
