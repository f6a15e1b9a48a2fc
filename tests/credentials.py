"""Credentials in the shapes in which their providers document them, and where people leave them.

None is real: each is put together when the tests run, from the shape and a generator.
"""

from __future__ import annotations

import random
import string
from typing import NamedTuple

LETTERS = string.ascii_letters
ALPHABETS = {
    "a": LETTERS + string.digits,
    "u": string.ascii_uppercase + string.digits,
    "l": string.ascii_lowercase + string.digits,
    "h": "0123456789abcdef",
    "d": string.digits,
    "b": LETTERS + string.digits + "+/",
    "w": LETTERS + string.digits + "-_",
}


class Shape(NamedTuple):
    """A text that has a credential in it.

    Args:
        name: What it is.
        text: The text, with ``{}`` where the credential stands.
        secret: The credential: ``<a20>`` is 20 signs of the alphabet ``a``, other text itself.
    """

    name: str
    text: str
    secret: str

    def made(self) -> tuple[str, str]:
        """Return the text with its credential, and the credential."""
        chance = random.Random(self.name)
        parts = self.secret.replace(">", "<").split("<")
        secret = "".join(
            "".join(chance.choices(ALPHABETS[part[0]], k=int(part[1:]))) if index % 2 else part
            for index, part in enumerate(parts)
        )
        return self.text.replace("{}", secret), secret


SHAPES = tuple(Shape(*row) for row in (
    ("AWS access key id", "botocore: using {} from the environment", "AKIA<u16>"),
    ("AWS temporary key id", "credentials: {} (assumed role)", "ASIA<u16>"),
    ("AWS secret key in a credentials file", "[default]\naws_secret_access_key = {}", "<b40>"),
    ("AWS session token in the environment",
     "export AWS_SESSION_TOKEN={}",
     "IQoJb3JpZ2luX2VjE<b200>=="),
    ("AWS signed URL",
     "GET https://b.s3.amazonaws.com/x?X-Amz-Expires=60&X-Amz-Signature={}&y=1",
     "<h64>"),
    ("AWS ECR password",
     "docker login -u AWS -p {} 1.dkr.ecr.us-east-1.amazonaws.com",
     "eyJwYXlsb2FkIjoi<b160>"),
    ("GitHub classic token", "remote: {} has no scope repo", "ghp_<a36>"),
    ("GitHub fine-grained token", "curl failed for {}", "github_pat_<a22>_<a59>"),
    ("GitHub OAuth token", "gh auth status: {}", "gho_<a36>"),
    ("GitHub app token in a remote",
     "url = https://x-access-token:{}@github.com/o/r.git",
     "ghs_<a36>"),
    ("GitHub refresh token", '{"refresh": "{}"}', "ghr_<a76>"),
    ("GitLab personal token", "PRIVATE-TOKEN: {}", "glpat-<w20>"),
    ("GitLab pipeline trigger", "triggered by {} on main", "glptt-<h40>"),
    ("GitLab runner",
     "gitlab-runner register --url https://gitlab.com --registration-token {}",
     "GR1348941<w20>"),
    ("GitLab deploy token in a URL",
     "git clone https://gitlab+deploy-token-7:{}@gitlab.com/o/r",
     "<w20>"),
    ("Slack bot token", "slack_sdk: invalid_auth {}", "xoxb-<d12>-<d12>-<a24>"),
    ("Slack app token", "connecting with {}", "xapp-1-A<u10>-<d13>-<h64>"),
    ("Slack webhook", "POST https://hooks.slack.com/services/{} 404", "T<u8>/B<u10>/<a24>"),
    ("Discord webhook", "https://discord.com/api/webhooks/123456789012345678/{}", "<w68>"),
    ("Discord bot", "DISCORD_BOT={}", "MT<a22>.G<a5>.<w38>"),
    ("Telegram bot", "https://api.telegram.org/bot{}/sendMessage", "<d10>:AA<w33>"),
    ("Google API key", "maps: {} is over its quota", "AIza<w35>"),
    ("Google OAuth access token", "token info: {}", "ya29.a0<w120>"),
    ("Google OAuth client secret", "client {} rejected", "GOCSPX-<w28>"),
    ("Google refresh token", '"refresh_token": "{}"', "1//0<w60>"),
    ("Google service account",
     ('{"type": "service_account", "private_key": "-----BEGIN PRIVATE KEY-----\\n{}\\n-----END '
     'PRIVATE KEY-----\\n", "x": 1}'),
     "MIIEvQIBADANBgkqh<b300>"),
    ("Azure SAS", "https://a.blob.core.windows.net/c/m.pt?sv=2024-11-04&sp=r&sig={}", "<a43>%3D"),
    ("Azure storage connection string",
     ("DefaultEndpointsProtocol=https;AccountName=a;AccountKey={};EndpointSuffix=core.windows.n"
     "et"),
     "<b86>=="),
    ("Azure client secret", "az login --service-principal -u 1 -p {} --tenant t", "<a3>8Q~<w34>"),
    ("Azure Service Bus",
     "Endpoint=sb://a.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey={}",
     "<b43>="),
    ("Azure SQL",
     "Server=tcp:a.database.windows.net;User ID=u;Password={};Encrypt=True",
     "P<a10>!x"),
    ("Azure DevOps token", "AZURE_DEVOPS_EXT_PAT={}", "<l52>"),
    ("Stripe secret key", "stripe.error: {} expired", "sk_live_<a24>"),
    ("Stripe restricted key", "using {}", "rk_live_<a24>"),
    ("Stripe webhook secret", "endpoint {}", "whsec_<a32>"),
    ("Twilio token", "TWILIO_AUTH_TOKEN={}", "<h32>"),
    ("Twilio API key", "twilio {} denied", "SK<h32>"),
    ("SendGrid", "mail: {} is revoked", "SG.<w22>.<w43>"),
    ("Mailgun", "api: {}", "key-<h32>"),
    ("Mailchimp", "MAILCHIMP={}", "<h32>-us12"),
    ("npm token in npmrc", "//registry.npmjs.org/:_authToken={}", "npm_<a36>"),
    ("npm password in npmrc", "//npm.corp.example/:_password={}", "<b24>=="),
    ("PyPI token", "twine: {} is not valid for this project", "pypi-AgEIcHlwaS5vcmc<w150>"),
    ("pypirc", "[pypi]\nusername = ann\npassword = {}", "<a14>"),
    ("RubyGems", "gem push with {}", "rubygems_<h48>"),
    ("crates.io", '[registry]\ntoken = "{}"', "cio<a32>"),
    ("Docker Hub token", "docker: {} unauthorized", "dckr_pat_<w27>"),
    ("Docker config",
     '{"auths": {"https://index.docker.io/v1/": {"auth": "{}"}}}',
     "YW5uOm<a30>=="),
    ("Hugging Face token", "huggingface_hub: {} has no access to gated models", "hf_<a34>"),
    ("OpenAI key", "openai.AuthenticationError: {}", "sk-<a48>"),
    ("OpenAI project key", "Incorrect API key provided: {}.", "sk-proj-<w74>T3BlbkFJ<w74>"),
    ("Anthropic key", "x-api-key: {}", "sk-ant-api03-<w93>AA"),
    ("Weights & Biases login", "wandb login {}", "<h40>"),
    ("Weights & Biases variable", "WANDB_API_KEY={} python train.py", "<h40>"),
    ("Databricks token", "databricks: {} not found", "dapi<h32>"),
    ("NVIDIA NGC key", "ngc config: {}", "nvapi-<w64>"),
    ("Replicate token", "replicate {}", "r8_<a37>"),
    ("Cohere key", "co.Client('x', api_key='{}')", "<a40>"),
    ("Comet key", "COMET_API_KEY: {}", "<a25>"),
    ("Neptune token", "NEPTUNE_API_TOKEN='{}'", "eyJhcGlfYWRkcmVzcyI6Imh0dHBz<a80>="),
    ("ClearML", 'api { credentials { "access_key" = "x", "secret_key" = "{}" } }', "<a48>"),
    ("Vault service token", "vault: {} has no policy", "hvs.<w90>"),
    ("Vault old token", "VAULT_TOKEN={}", "s.<a24>"),
    ("Terraform cloud", 'credentials "app.terraform.io" { token = "{}" }', "<a14>.atlasv1.<a67>"),
    ("Terraform variable", "TF_VAR_db_password={} terraform apply", "<a9>!"),
    ("Pulumi", "pulumi login {}", "pul-<h40>"),
    ("Datadog", "DD_API_KEY={} ddtrace-run python x.py", "<h32>"),
    ("New Relic", "agent: {}", "NRAK-<u27>"),
    ("Sentry DSN", "sentry_sdk.init('https://{}@o1.ingest.sentry.io/2')", "<h32>"),
    ("Grafana", "grafana {} expired", "glsa_<a32>_<h8>"),
    ("Heroku", "HEROKU_API_KEY={}", "<h8>-<h4>-4<h3>-a<h3>-<h12>"),
    ("DigitalOcean", "doctl auth init -t {}", "dop_v1_<h64>"),
    ("Linear", "linear: {}", "lin_api_<a40>"),
    ("Notion", "notion: {}", "ntn_<d11><a35>"),
    ("Shopify", "shop: {}", "shpat_<h32>"),
    ("Tailscale", "tailscale up --authkey {}", "tskey-auth-<a12>CNTRL-<a32>"),
    ("JSON web token", "jwt {} is expired", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI<w30>.<w43>"),
    ("private key",
     "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----",
     "MIIEow<b120>"),
    ("OpenSSH key without its end",
     "-----BEGIN OPENSSH PRIVATE KEY-----\n{}",
     "b3BlbnNzaC1rZXktdjE<b90>"),
    ("password in a URL", "postgresql+psycopg2://ann:{}@db.example.org:5432/x", "<a12>"),
    ("password with an at in a URL", "amqp://ann:{}@mq.example.org//", "p@<a8>"),
    ("token as the user of a URL", "pip install git+https://{}@example.org/o/r.git", "<a20>"),
    ("basic authorization", "> Authorization: Basic {}", "YW5uOn<a18>="),
    ("bearer authorization in curl",
     "curl -H 'Authorization: Bearer {}' https://example.org",
     "<a32>"),
    ("header in a dictionary", "headers={'X-Auth-Token': '{}', 'Accept': '*/*'}", "<a24>"),
    ("cookie", "Cookie: theme=dark; sessionid={}; csrftoken=x", "<l32>"),
    ("netrc", "machine api.example.org login ann password {}", "<a12>"),
    ("pgpass", "db.example.org:5432:train:ann:{}", "<a12>"),
    ("kubeconfig", "users:\n- name: ann\n  user:\n    client-key-data: {}", "LS0tLS1CRUdJTi<b200>"),
    ("conda channel",
     "https://conda.anaconda.org/t/{}/my-channel/linux-64",
     "ab-<h8>-<h4>-<h4>-<h12>"),
    ("conda variable", "CONDA_URL=https://conda.example.org/t/{}/main", "<a20>"),
    ("short variable", "DB_PASS={} MAX_JOBS=4 python x.py", "<a7>"),
    ("user and password as an option", "curl --user ann:{} https://example.org/x", "<a10>"),
    ("auth option", "http --auth ann:{} GET example.org", "<a10>"),
    ("option -p", "sshpass -p {} ssh ann@example.org", "<a9>"),
    ("password with spaces in one quoted word",
     "mysql '--password={}' -h db train",
     "cor rect <a4> horse"),
    ("password as one quoted value",
     'connect(user="ann", password="{}", port=5432)',
     "cor rect, <a4>; horse"),
    ("YAML", "database:\n  user: ann\n  passwd: {}\n  port: 5432", "<a11>"),
    ("TOML", "[tool.x]\napi-token = '{}'", "<a18>"),
    ("query string", "GET /v1/files?name=x&access_token={}&page=2 HTTP/1.1", "<a22>"),
    # Written when all was done, to see what happens with what nobody had in mind.
    ("Mistral", "MISTRAL_API_KEY={}", "<a32>"),
    ("Groq", "groq.AuthenticationError: invalid key {}", "gsk_<a52>"),
    ("Fireworks", "fireworks client made with {}", "fw_<a24>"),
    ("Together", "together.ai said 401 to {}", "tgp_v1_<w43>"),
    ("LangSmith", "export LANGCHAIN_API_KEY=\"{}\"", "lsv2_pt_<h32>_<h10>"),
    ("Pinecone", "pinecone.init(api_key='{}', environment='us-east1-gcp')", "pcsk_<a5>_<a63>"),
    ("Modal", "modal token set --token-id ak-1 --token-secret {}", "as-<a22>"),
    ("RunPod", "runpodctl config --apiKey {}", "<u40>"),
    ("Lambda Cloud", "curl -u {}: https://cloud.lambdalabs.com/api/v1/instances",
     "secret_train_<h32>.<a32>"),
    ("Vast", "vastai set api-key {}", "<h64>"),
    ("Kaggle", '{"username":"ann","key":"{}"}', "<h32>"),
    ("Snowflake", "snowsql -a org-acc -u ann --password {}", "<a13>"),
    ("MongoDB Atlas", "mongodb+srv://ann:{}@cluster0.abcde.mongodb.net/test", "<a16>"),
    ("Redis", "redis-cli -h cache -a {} ping", "<a16>"),
    ("RabbitMQ", "CELERY_BROKER_URL=amqp://worker:{}@mq:5672//", "<a14>"),
    ("S3 compatible", "MINIO_ROOT_PASSWORD={} minio server /data", "<a20>"),
    ("rclone", "[b2]\ntype = b2\naccount = 00412\nkey = {}", "K004<b27>"),
    ("Backblaze", "b2 authorize-account 0041234 {}", "K004<a27>"),
    ("Cloudflare token", "CF_API_TOKEN: \"{}\"", "<w40>"),
    ("GitHub Actions mask", "env:\n  GITHUB_TOKEN: {}\n  CI: true", "ghs_<a36>"),
    ("Jupyter", "http://127.0.0.1:8888/lab?token={}", "<h48>"),
    ("MLflow", "MLFLOW_TRACKING_PASSWORD='{}' MLFLOW_TRACKING_USERNAME=ann", "<a12>"),
    ("Kerberos keytab password", "echo {} | kinit ann@EXAMPLE.ORG  # password: {}", "<a6>#<a6>"),
    ("GPG", "gpg --batch --passphrase {} -d model.pt.gpg", "<a15>"),
    ("age", "identity AGE-SECRET-KEY-{} in keys.txt", "1<u58>"),
    ("OpenVPN", "auth-user-pass: {ann, {}}", "<a12>"),
    ("Spring", "spring.datasource.password={}", "<a12>"),
    ("Kubernetes variable", "- name: DB_PASSWORD\n  value: {}", "<a12>"),
    ("Helm", "helm install x --set auth.rootPassword={}", "<a12>"),
    ("Java property", "java -Djavax.net.ssl.keyStorePassword={} -jar x.jar", "<a12>"),
))  # fmt: skip
